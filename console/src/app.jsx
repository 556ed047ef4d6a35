import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { get, storedKey, storeKey, withQuery } from "./api.js";
import { address, useAddress } from "./address.js";
import { heads } from "./history.js";
import { useKeys } from "./keyboard.js";
import { usePoll } from "./poll.js";
import { Patterns } from "./parts/patterns.jsx";
import { Access } from "./parts/access.jsx";
import { Header } from "./parts/header.jsx";
import { Help } from "./parts/help.jsx";
import { Status } from "./parts/status.jsx";
import { AskForKey, Recovering } from "./parts/gates.jsx";
import { Cursors } from "./views/cursors.jsx";
import { Overview } from "./views/overview.jsx";
import { Queues } from "./views/queues.jsx";
import { Routers } from "./views/routers.jsx";
import { System } from "./views/system.jsx";
import { Topic } from "./views/topic.jsx";

const TITLES = {
  overview: "Overview",
  queues: "Queues",
  routers: "Routers",
  cursors: "Cursors",
  system: "System",
  topic: "Topic",
};

export function App() {
  const place = useAddress();
  const [helping, setHelping] = useState(false);
  const [asking, setAsking] = useState(false);
  const overview = useOverview(place);
  useKeys(place, () => setHelping(true));
  useTitle(place, overview.value);

  const changeKey = useCallback((key) => {
    storeKey(key);
    setAsking(false);
    overview.refresh();
  }, []);
  const { error } = overview;
  const needsKey = error?.status === 401;
  const mayNotRead = error?.status === 403;

  return (
    <Access.Provider value={overview.value?.key ?? null}>
      <Patterns />
      <a class="skip" href="#main">Skip to the content</a>
      <Header
        place={place}
        apiKey={overview.value?.key}
        onHelp={() => setHelping(true)}
        onKey={() => setAsking(true)}
      />
      <Status overview={overview.value} error={error} />
      <main id="main" tabindex="-1">
        {needsKey || asking ? (
          <AskForKey wrong={needsKey && storedKey() !== ""} onKey={changeKey} onCancel={needsKey ? null : () => setAsking(false)} />
        ) : mayNotRead ? (
          <AskForKey forbidden={error.message} onKey={changeKey} />
        ) : error?.code === "not_ready" ? (
          <Recovering />
        ) : overview.value ? (
          <View place={place} overview={overview} />
        ) : (
          <p class="quiet">{error ? "" : "Asking the server…"}</p>
        )}
      </main>
      {helping && <Help onClose={() => setHelping(false)} />}
    </Access.Provider>
  );
}

function View({ place, overview }) {
  switch (place.view) {
    case "topic":
      return <Topic key={place.name} name={place.name} query={place.query} overview={overview} />;
    case "queues":
      return <Queues query={place.query} />;
    case "routers":
      return <Routers query={place.query} />;
    case "cursors":
      return <Cursors query={place.query} />;
    case "system":
      return <System />;
    case "overview":
      return <Overview query={place.query} overview={overview} />;
    default:
      return (
        <section>
          <h1>There is no such view</h1>
          <p><a href={address("overview")}>Back to the overview</a></p>
        </section>
      );
  }
}

// The first screen is one request, every second. Elsewhere the same route keeps the status line true.
function useOverview({ view, query }) {
  const isShown = view === "overview";
  const asked = isShown ? { find: query.find, cursor: query.after } : { page_size: 1 };
  const path = withQuery("/v0/overview", asked);
  const answer = usePoll((signal) => get(path, { signal }), isShown ? 1000 : 5000, [path]);
  const noted = useRef(null);
  if (isShown && answer.value && noted.current !== answer.value) {
    noted.current = answer.value;
    for (const row of answer.value.topics) heads.add(row.topic, answer.value.server.now_ms, row.head_seq);
  }
  // Between two pages, the old one stays until the new one is there.
  const last = useRef(null);
  if (answer.value) last.current = answer.value;
  const keeps = !answer.error || answer.error.status === 0;
  return { ...answer, value: answer.value ?? (keeps ? last.current : null) };
}

function useTitle({ view, name }, overview) {
  useEffect(() => {
    const alarms = overview ? Object.values(overview.attention_counts).reduce((sum, one) => sum + one, 0) : 0;
    const where = name || TITLES[view] || "topics";
    document.title = `${alarms ? `(${alarms}) ` : ""}${where} · topics`;
  }, [view, name, overview]);
}
