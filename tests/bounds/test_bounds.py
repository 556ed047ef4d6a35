"""Every bound has a row in docs/configuration.md, and a test that reaches it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# By name of the bound, as in the document: the test that reaches it.
PROOFS = {
    "max_topics": ("contract/test_limits.py", "test_the_number_of_topics"),
    "max_routers": ("contract/test_stream_limits.py", "test_the_number_of_routers"),
    "max_watch_sessions": ("contract/test_stream_limits.py", "test_the_number_of_sessions"),
    "max_sse_connections": ("contract/test_stream_limits.py", "test_all_kinds_of_streams_share_the_places"),
    "max_sse_connections_per_key": ("contract/test_stream_limits.py", "test_streams_of_one_key"),
    "max_inflight_per_key": (
        "contract/test_limits.py",
        "test_requests_in_flight_are_counted_per_key_and_before_everything_but_the_key",
    ),
    "max_total_bytes": ("contract/test_limits.py", "test_the_total_of_bytes"),
    "max_connections": (
        "http/admission/test_connection_limit.py",
        "test_one_more_than_allowed_is_told_so_and_closed",
    ),
    "max_tickets": ("http/admission/test_tickets.py", "test_there_are_only_so_many"),
    "max_request_bytes": (
        "http/admission/test_request_room.py",
        "test_what_does_not_fit_any_more_is_refused_and_room_comes_back",
    ),
    "size of a body": ("contract/test_heavy_requests.py", "test_arrow_bodies_that_unfold_to_gigabytes"),
    "records in memory": ("log/write/test_brake.py", "test_a_group_waits_behind_the_one_before_it"),
    "pipelined requests": ("http/test_pipelining.py", "test_what_waits_is_bounded"),
    "unread answers": (
        "http/test_pipelining.py",
        "test_a_client_that_asks_and_never_reads_does_not_fill_memory",
    ),
    "requests of an HTTP/2 connection": ("http/http2/test_connection.py", "test_so_many_requests_at_a_time"),
    "unread answers of an HTTP/2 connection": (
        "http/http2/test_stream.py",
        "test_with_too_much_unread_new_requests_wait",
    ),
    "topics of a session": ("contract/test_watch.py", "test_unsound_sessions"),
    "nodes of a reader": ("contract/test_second_thoughts.py", "test_more_than_a_thousand_nodes"),
    "max_subscriptions": ("http/test_websocket.py", "test_a_socket_has_so_many_subscriptions_at_most"),
    "waiting changes": ("log/write/test_full_queue.py", "test_a_refused_creation_leaves_the_name_free"),
    "held writes": ("flow/test_priority_scheduler.py", "test_what_waits_is_bounded_in_bytes"),
    "named cursors": ("flow/test_cursors.py", "test_their_number_is_limited_but_moving_one_is_not"),
    "cursors left behind": ("flow/test_cursors.py", "test_those_left_behind_are_bounded"),
    "names of dropped topics": ("log/test_lives.py", "test_beyond_the_bound_every_new_topic_counts_as_later"),
    "max_snapshots": ("flow/test_segment_pins.py", "test_their_number_is_limited"),
    "max_backups": ("ops/test_backup_holds.py", "test_there_are_only_so_many"),
    "max_purges": ("ops/test_purge.py", "test_only_so_many_wait_and_are_remembered"),
    "max_stage_parts": ("flow/stages/test_parts.py", "test_an_owner_has_so_many_parts_at_most"),
    "ids of stages": (
        "flow/stages/test_identities.py",
        "test_the_application_unused_longest_is_forgotten_first",
    ),
    "parts of a commit": ("flow/stages/test_stages.py", "test_a_commit_that_is_too_large_is_refused"),
    "keys of a router": ("flow/routers/test_exactly_once.py", "test_keys_for_records_to_come_are_bounded"),
    "ranges of a ledger": (
        "log/remove/test_ledger.py",
        "test_the_oldest_ranges_are_told_with_less_detail_when_there_are_too_many",
    ),
    "holes of a topic": (
        "log/test_watermarks.py",
        "test_holes_in_front_of_everything_become_one_when_there_are_too_many",
    ),
    "leases": ("flow/queues/test_leases.py", "test_times_of_leases_and_delays_that_ended_do_not_pile_up"),
    "idempotency keys": ("log/write/test_idempotency.py", "test_bounds_hold_over_many_chunks"),
    "early requests": ("http/test_recovering.py", "test_no_more_than_a_thousand_wait"),
    "known heads": ("http/test_known_heads.py", "test_the_number_of_heads_is_bounded"),
    "known targets": ("http/test_routing.py", "test_memory_of_targets_is_bounded"),
    "known bodies": ("core/test_strict.py", "test_the_number_of_known_bodies_is_bounded"),
    "known keys": ("http/admission/test_keys.py", "test_remembered_headers_are_bounded"),
    "labels of metrics": ("http/test_metrics.py", "test_only_the_furthest_are_named"),
    "times of removals": (
        "log/remove/test_gone_times.py",
        "test_stretches_are_bounded_and_the_truth_lies_within_them",
    ),
    "pipelines": ("flow/test_pipelines.py", "test_there_are_so_many_at_most"),
    "losses told": ("log/remove/test_losses_told.py", "test_so_many_topics_are_remembered_and_no_more"),
}


@pytest.mark.parametrize("bound", PROOFS)
def test_every_bound_has_a_proof(bound: str) -> None:
    path, test = PROOFS[bound]
    assert re.search(rf"^(async )?def {test}\(", (ROOT / "tests" / path).read_text(), re.MULTILINE)


def test_the_document_lists_them_all() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text()
    section = text.partition("## What bounds memory\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("|")]
    assert {name.strip("`") for row in rows[2:] for name in row.split(", ")} == PROOFS.keys()
