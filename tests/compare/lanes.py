"""Random histories of requests. A lane is one of them: it has topics and connections of its own.

A lane is a generator. It yields bursts, which are sent without waiting in between, and receives the answers
of the same server; so ids and seqs in later requests are those that this server gave out. With the same seed
and the same answers it sends the same requests.
"""

from __future__ import annotations

from collections.abc import Generator
from random import Random
from typing import Any

from tests.compare import bodies
from tests.compare.bodies import compact, encoded
from tests.compare.maker import ARROW, Burst, Maker
from tests.compare.servers import Answer, Request

# Long enough that a record or a lease of 1 ms, or of the shortest lease, has ended.
SHORT_S = 0.03
LEASE_S = 0.16
SHORTEST_LEASE_MS = 100
# Bodies of appends that have the same length each time.
REPEATED = {
    "one record": b'{"records":[{"data":{"n":%d}}]}',
    "one longer record": b'{"records":[{"data":{"n":%d,"text":"' + b"z" * 90 + b'"}}]}',
    "a number": b'{"records":[{"data":%d}]}',
    "blanks": b'{"records": [{"data": {"n": %d}}]}',
    "tag": b'{"records":[{"data":{"n":%d},"tag":"user:1"}]}',
    "node": b'{"node":"web-1","records":[{"data":{"n":%d}}]}',
    "two records": b'{"records":[{"data":{"n":%d}},{"data":2}]}',
}
Lane = Generator[Burst, list[Answer], None]
KINDS: tuple[tuple[str, int], ...] = (
    ("log", 44),
    ("plain", 12),
    ("queue", 14),
    ("router", 7),
    ("brief", 3),
    ("socket", 12),
    ("arrow", 10),
    ("wrong", 6),
)


def _burst_size(random: Random) -> int:
    luck = random.random()
    if luck < 0.45:
        return 1
    if luck < 0.8:
        return random.randint(2, 8)
    return random.randint(9, 32) if luck < 0.95 else random.randint(33, 64)


# --- kinds of lanes -----------------------------------------------------------------------------------------


def log(make: Maker) -> Lane:
    """A topic or two with a random configuration, and a topic that is never made on purpose."""
    random = make.random
    topics = [make.topic("a")]
    if make.chance(0.3):
        topics.append(make.topic("b"))
    for topic in topics:
        if make.chance(0.6):
            yield Burst([make.configure(topic, make.config())])
    if make.chance(0.06):
        make.learn(topics[0], (yield Burst([_fill(make, topics[0])])))
    for _ in range(random.randint(5, 11)):
        topic = random.choice(topics)
        size = _burst_size(random)
        luck = random.random()
        if size > 1 and luck < 0.12:
            requests = [make.plain_append(topic) for _ in range(size)]
        elif size > 1 and luck < 0.3:
            requests = [make.append(topic) for _ in range(size)]
        elif luck < 0.31:
            text, shape = bodies.large_body(random)
            size = 1
            requests = [make.request("POST", f"/v0/topics/{topic}", text.encode(), shape)]
        else:
            requests = [make.any_of(topic) for _ in range(size)]
        if size > 1:
            requests = [Request(r.data, (*r.features, "in a pipelined burst"), r.head_only) for r in requests]
        make.learn(topic, (yield Burst(requests)))
    yield make.final_reads(topics)


def _repeated(make: Maker, topic: str, kind: str, value: int, key: str | None) -> Request:
    """An append whose head is the same as that of others of its kind, but for the value of a key."""
    headers = () if key is None else (f"Idempotency-Key: {key}",)
    features = ["append: the same head again", f"the same head again: {kind}"]
    if key is not None:
        features.append("the same head again: key in the header")
    return make.request(
        "POST", f"/v0/topics/{topic}", REPEATED[kind] % value, *features, headers=headers, encode=False
    )


def _fill(make: Maker, topic: str) -> Request:
    """An append of so many records that the next seqs have more digits soon."""
    count = make.random.choice((3, 95, 990, 995, 1500, 9990))
    body = b'{"records":[' + b",".join([b'{"data":1}'] * count) + b"]}"
    return make.request("POST", f"/v0/topics/{topic}", body, "append: up to 9990 records first")


def _key_of_burst(make: Maker, way: str) -> str | None:
    """The key of one append of a burst, in which keys are new, old, or not there."""
    if way == "none":
        return None
    if make.chance(0.01):
        return "k" * make.random.choice((255, 256, 257))
    return make.new_key() if way == "new" else f"k{make.random.randrange(8)}"


def plain(make: Maker) -> Lane:
    """Appends whose heads repeat, alone and in bursts, as clients send that do nothing else."""
    random = make.random
    topic = make.topic("p")
    if make.chance(0.8):
        make.style = random.randrange(2)
    if make.chance(0.5):
        yield Burst([make.configure(topic, make.config())])
    if make.chance(0.5):
        yield Burst([_fill(make, topic)])
    kinds = [*random.sample(list(REPEATED), 2), "one record"]
    for _ in range(random.randint(6, 14)):
        way = random.choice(("none", "none", "new", "old", "mixed"))
        kind = random.choice(kinds)
        requests = []
        for _ in range(_burst_size(random)):
            one = random.choice(("none", "new", "old")) if way == "mixed" else way
            value = random.randint(1000, 9999)
            requests.append(_repeated(make, topic, kind, value, _key_of_burst(make, one)))
            if make.chance(0.02):
                requests.append(make.any_of(topic))
        make.learn(topic, (yield Burst(requests)))
    yield make.final_reads([topic])


def shared(seed: str, name: str, number: int, *, has_keys: bool) -> tuple[Maker, Lane]:
    """One of several lanes that append the same records to one topic.

    Which of them gets which seq is not known, but all of their answers together are, and so is what is read.
    """
    own = Random(f"{seed}-{number}")
    make = Maker(own, f"{name}-shared", has_keys, restricts_keys=False)
    # An answer repeats the id of its request, so that the answers to different lanes would differ.
    make.style = own.randrange(2)
    topic = make.topic("x")
    # All lanes have the same one.
    random = Random(seed)

    def requests() -> Lane:
        config = {
            name: value for name, value in make.config().items() if name not in ("discard", "cap_bytes")
        }
        yield Burst([make.configure(topic, config)] if number == 0 else [])
        is_filled = random.random() < 0.6
        yield Burst([_fill(make, topic)] if number == 0 and is_filled else [])
        # The keys of this lane, by the turn in which all lanes used new ones.
        used: dict[int, list[str]] = {}
        usual = random.choice(("one record", "one longer record", "a number", *REPEATED))
        for turn in range(random.randint(8, 16)):
            kind = usual if random.random() < 0.8 else random.choice(list(REPEATED))
            value = random.randint(1000, 9999)
            way = random.choice(("none", "none", "none", "none", "new", "new", "again", "common", "either"))
            count = random.choice((1, 1, 1, 1, 1, 2, 3, 16))
            again = random.choice(list(used)) if used and way == "again" else None
            if way == "new":
                used[turn] = []
            found = [] if again is None else [_repeated(make, topic, kind, value, key) for key in used[again]]
            for at in range(0 if again is not None else count if own.random() < 0.9 else 0):
                key = None
                if way == "new" or (way == "either" and own.random() < 0.5):
                    key = f"u{number:03d}-{turn:03d}-{at:03d}"
                    if way == "new":
                        used[turn].append(key)
                elif way == "common":
                    key = f"c{turn:03d}-{at:03d}-0000"
                found.append(_repeated(make, topic, kind, value, key))
            yield Burst(found)
        yield make.final_reads([topic]) if number == 0 else Burst([])

    return make, requests()


def wrong(make: Maker) -> Lane:
    """Mostly requests that are refused, to a topic that is there or not."""
    random = make.random
    topic = make.topic("w")
    if make.chance(0.5):
        yield Burst([make.configure(topic, make.config())])
    for _ in range(random.randint(3, 6)):
        make_one = random.choice((make.wrong, make.wrong, make.append))
        requests = [make_one(topic) for _ in range(random.choice((1, 1, 3, 8)))]
        make.learn(topic, (yield Burst(requests)))
    yield make.final_reads([topic])


def brief(make: Maker) -> Lane:
    """Records and keys that are over after a millisecond, read only afterwards."""
    random = make.random
    topic = make.topic("t")
    config = random.choice(
        (
            {"ttl_ms": 1},
            {"ttl_ms": 1, "durability": "ephemeral"},
            {"idempotency_window_ms": 1},
            {"ttl_ms": 2, "durability": "fsync"},
        )
    )
    yield Burst([make.configure(topic, config, "topic with a short time")])
    for number in range(random.randint(1, 3)):
        requests = [make.plain_append(topic) for _ in range(random.choice((1, 3, 20)))]
        body = b'{"records":[{"data":1}],"idempotency_key":"k%d"}' % random.choice((0, number))
        requests.append(
            make.request("POST", f"/v0/topics/{topic}", body, "append: data alone", "key of a short time")
        )
        make.learn(topic, (yield Burst(requests)))
        reads = [
            make.diff(topic),
            make.one(topic),
            make.state(topic),
            make.ledger(topic),
            make.records(topic),
        ]
        random.shuffle(reads)
        yield Burst(
            [Request(r.data, (*r.features, "read after a short time"), r.head_only) for r in reads], SHORT_S
        )
    yield make.final_reads([topic])


def queue(make: Maker) -> Lane:
    """Jobs that are claimed, acknowledged, given back, and moved to the dead letters."""
    random = make.random
    topic, dead = make.topic("q"), make.topic("dead")
    config: dict[str, Any] = {"type": "queue", "lease_ms": random.choice((30_000, 86_400_000))}
    topics = [topic]
    if make.chance(0.6):
        config |= {"max_deliveries": random.choice((1, 2)), "dead_letter": dead}
        topics.append(dead)
    if make.chance(0.3):
        config["leases_durable"] = True
    if make.chance(0.2):
        config["cap_records"] = random.choice((3, 10))
    if make.chance(0.2):
        config["durability"] = random.choice(("fsync", "ephemeral"))
    yield Burst([make.configure(topic, config, "queue: PUT")])
    held: dict[str, list[tuple[int, str]]] = {"w1": [], "w2": []}
    if dead in topics and make.chance(0.6):
        yield from _until_dead(make, topic, dead, config["max_deliveries"])
    for _ in range(random.randint(8, 16)):
        luck = random.random()
        node = random.choice(("w1", "w2"))
        pause = 0.0
        if luck < 0.3:
            count = random.choice((1, 1, 4))
            requests = [
                make.append(topic) if make.chance(0.6) else make.plain_append(topic) for _ in range(count)
            ]
        elif luck < 0.65:
            members = [f'"node":"{node}"', f'"max":{random.choice((1, 1, 2, 5))}']
            if make.chance(0.06):
                members.append(f'"lease_ms":{SHORTEST_LEASE_MS}')
                pause = LEASE_S
            requests = [_job(make, topic, "claim", members)]
        elif luck < 0.92:
            requests = [_about_held(make, topic, node, held[node])]
        elif luck < 0.96:
            requests = [make.any_of(topic)]
        else:
            target = f"/v0/topics/{topic}"
            requests = [make.request("GET", f"{target}/leases", None, "queue: leases"), make.state(topic)]
            if len(topics) > 1:
                requests += [make.request("POST", f"/v0/topics/{dead}/redrive", None, "queue: redrive")]
        answers = yield Burst(requests)
        make.learn(topic, answers)
        for answer in answers:
            if b'"claimed":[{' in answer.body:
                held[node] += [(job["$seq"], job["lease_id"]) for job in answer.json["claimed"]]
        if pause:
            yield Burst([_about_held(make, topic, node, held[node]), make.state(topic)], pause)
    yield make.final_reads(topics)


def _until_dead(make: Maker, topic: str, dead: str, deliveries: int) -> Lane:
    """Jobs that are claimed and given back until the next claim makes dead letters of them."""
    node = '"node":"w3"'
    yield Burst([make.append(topic), make.plain_append(topic)])
    for _ in range(deliveries + 1):
        answers = yield Burst([_job(make, topic, "claim", [node, '"max":9'])])
        seqs = [job["$seq"] for job in answers[0].json.get("claimed", ())] if answers[0].status == 200 else []
        if seqs:
            members = [node, f'"seqs":{compact(seqs)}', f'"error":"{"e" * make.random.randrange(20)}"']
            yield Burst([_job(make, topic, "nack", members)])
    yield Burst([make.diff(dead), make.state(topic), make.one(dead)])
    if make.chance(0.5):
        redrive = make.request("POST", f"/v0/topics/{dead}/redrive", None, "queue: redrive")
        yield Burst([redrive, make.diff(dead), _job(make, topic, "claim", [node])])


def _job(make: Maker, topic: str, route: str, members: list[str]) -> Request:
    if make.chance(0.04):
        members.append(
            make.random.choice(
                ('"x":1', '"max":"a"', '"node":1', '"lease_ms":-1', '"wait_ms":0', '"seqs":[]', '"node":"a"')
            )
        )
    body = encoded("{" + ",".join(members) + "}")
    return make.request("POST", f"/v0/topics/{topic}/{route}", body, f"queue: {route}")


def _about_held(make: Maker, topic: str, node: str, held: list[tuple[int, str]]) -> Request:
    """Say something of jobs that the worker holds, and sometimes of others."""
    random = make.random
    route = random.choice(("ack", "ack", "nack", "nack", "nack", "extend"))
    chosen = random.sample(held, min(len(held), random.choice((1, 1, 2))))
    seqs = [seq for seq, _ in chosen]
    if make.chance(0.15) or not seqs:
        seqs.append(make.seq(topic))
    members = [f'"node":"{node}"', f'"seqs":{compact(seqs)}']
    if make.chance(0.3):
        leases = [lease for _, lease in chosen] + ["" for _ in seqs[len(chosen) :]]
        if make.chance(0.1):
            leases[0] = "lease_0"
        members.append(f'"lease_ids":{compact(leases)}')
    if route == "nack":
        if make.chance(0.5):
            members.append(f'"delay_ms":{random.choice((0, 0, 0, 80_000_000))}')
        if make.chance(0.4):
            members.append(f'"error":{bodies.of_size(random.choice((5, 1024, 1025)), random)}')
    elif route == "extend":
        members.append('"lease_ms":60000')
    if route != "extend":
        held[:] = [job for job in held if job not in chosen or make.chance(0.1)]
    return _job(make, topic, route, members)


def router(make: Maker) -> Lane:
    """A source, one or two destinations, and reads of the copies.

    How much a cap of the source takes before it is copied depends on time, so there are no caps.
    """
    random = make.random
    make.has_caps = False
    source, first, second = make.topic("s"), make.topic("d1"), make.topic("d2")
    if make.chance(0.3):
        yield Burst([make.configure(source, make.config())])
    dests = [first] if make.chance(0.5) else [first, second]
    for number, dest in enumerate(dests):
        origin = source if number == 0 or make.chance(0.5) else first
        config: dict[str, Any] = {"source": origin, "dest": dest}
        if make.chance(0.4):
            config["filter"] = random.choice(("user:*", "vip:1", ["tag", "Glob", "vip:*"]))
        if make.chance(0.3):
            config["guarantee"] = "exactly_once"
        if make.chance(0.2):
            config["preserve_node"] = False
        if make.chance(0.2):
            config["preserve_tag"] = False
        if make.chance(0.05):
            config["dest"] = origin
        body = compact(config).encode()
        name = f"{make.name}-r{number}"
        yield Burst([make.request("PUT", f"/v0/routers/{name}", body, "router: PUT")])
    for _ in range(random.randint(4, 8)):
        luck = random.random()
        if luck < 0.7:
            requests = [make.append(source) for _ in range(random.choice((1, 1, 4, 16)))]
        elif luck < 0.78:
            requests = [make.append(random.choice(dests))]
        elif luck < 0.86:
            requests = [make.delete(random.choice(dests))]
        else:
            requests = [make.one(random.choice(dests))]
        answers = yield Burst(requests)
        if luck < 0.7:
            make.learn(source, answers)
        for dest in dests:
            make.learn(dest, (yield Burst([make.diff(dest), make.records(dest)])))
    yield make.final_reads([source, *dests])
    yield Burst([make.request("GET", f"/v0/routers/{make.name}-r0", None, "router: GET")])
    if make.chance(0.5):
        yield Burst([make.request("DELETE", f"/v0/routers/{make.name}-r0", None, "router: DELETE")])


def socket(make: Maker) -> Lane:
    """Appends over a WebSocket, one or several in a turn, and reads of what was written.

    How far the appends are that came before is part of an answer that refuses an append to a full topic, and
    depends on time if they came in the same turn.
    """
    random = make.random
    make.has_caps = make.chance(0.5)
    sizes = (1,) if make.has_caps else (1, 2, 5, 20)
    topic = make.topic("ws")
    if make.chance(0.5):
        yield Burst([make.configure(topic, make.config())])
    for _ in range(random.randint(4, 8)):
        requests = [_message(make, topic, number) for number in range(random.choice(sizes))]
        make.learn(topic, (yield Burst(requests)))
        if make.chance(0.4):
            make.learn(topic, (yield Burst([make.any_of(topic)])))
    yield make.final_reads([topic])


def _message(make: Maker, topic: str, number: int) -> Request:
    random = make.random
    if make.chance(0.06):
        text = random.choice(
            (
                f'{{"op":"ping","request_id":{number}}}',
                '{"op":"nothing"}',
                "{",
                "[]",
                "",
                '{"op":"publish"}',
                f'{{"op":"publish","request_id":{number},"topic":"{topic}"}}',
                f'{{"op":"publish","topic":"{topic}","records":[]}}',
                f'{{"op":"publish","topic":"{topic}","records":[{{"data":1}}],"x":1}}',
                '{"op":"publish","topic":"-","records":[{"data":1}]}',
                f'{{"op":"unsubscribe","request_id":{number},"topic":"{topic}"}}',
            )
        )
        return Request(text.encode(), ("socket: other messages",), is_message=True)
    made = bodies.append_body(random)
    make._options(made)
    if make.chance(0.3):
        made.features.append("key in the body of a message")
        made.add(random, f'"idempotency_key":"k{random.randrange(6)}"')
    made.before[:0] = ['"op":"publish"', f'"request_id":{number}', f'"topic":"{topic}"']
    data = encoded(made.text(random))
    try:
        data.decode()
    except UnicodeDecodeError:
        # A text message that is no UTF-8 ends the socket.
        data = data.decode("utf-8", "replace").encode()
    return Request(data, ("socket: publish", *made.features[1:]), is_message=True)


def arrow(make: Maker) -> Lane:
    """Appends of columns among those of JSON."""
    random = make.random
    topic = make.topic("c")
    if make.chance(0.5):
        yield Burst([make.configure(topic, make.config())])
    for _ in range(random.randint(3, 6)):
        requests = []
        for _ in range(random.choice((1, 1, 2, 5))):
            if make.chance(0.25):
                requests.append(make.any_of(topic))
                continue
            body, shape = bodies.arrow_body(random)
            query = random.choice(
                ("", "", "?create=false", "?idempotency_key=k1", "?idempotency_key=k2", "?x=1")
            )
            target = f"/v0/topics/{topic}/append{query}"
            requests.append(make.request("POST", target, body, shape, content_type=ARROW))
        make.learn(topic, (yield Burst(requests)))
    yield make.final_reads([topic])


LANES = {
    "log": log,
    "plain": plain,
    "queue": queue,
    "router": router,
    "brief": brief,
    "socket": socket,
    "arrow": arrow,
    "wrong": wrong,
}


def lane(seed: str, name: str, *, has_keys: bool, only: str | None = None) -> tuple[Maker, Lane]:
    """The maker and the requests of one lane, all of them chosen by the seed; or of a lane of that kind."""
    random = Random(seed)
    kind = only or random.choices([name for name, _ in KINDS], [weight for _, weight in KINDS])[0]
    # A fifth of the topics have names that restricted keys may use.
    prefix = "p." if random.random() < 0.2 else ""
    make = Maker(random, f"{prefix}{name}-{kind}", has_keys)
    return make, LANES[kind](make)


def after_restart(seed: str, name: str, topics: list[str], *, has_keys: bool) -> tuple[Maker, Lane]:
    """Reads of all that is left of earlier lanes; some more appends, and retries of keys that they used."""
    make = Maker(Random(seed), name, has_keys)

    def requests() -> Lane:
        for topic in topics:
            yield make.final_reads([topic])
            # What is over after a millisecond may be over before the next request.
            most = 0 if "-brief-" in topic else 2
            more = [make.append(topic) for _ in range(make.random.randint(0, most))]
            buckets = make.request("GET", f"/v0/topics/{topic}/ledger?buckets=3", None, "ledger")
            yield Burst([*more, make.state(topic), buckets])

    return make, requests()
