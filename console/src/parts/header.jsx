import { useEffect, useState } from "preact/hooks";
import { address, go } from "../address.js";
import { chosenTheme, nextTheme } from "../theme.js";

const VIEWS = [
  ["overview", "Overview"],
  ["queues", "Queues"],
  ["routers", "Routers"],
  ["cursors", "Cursors"],
  ["system", "System"],
];

export function Header({ place, apiKey, onHelp, onKey }) {
  return (
    <header class="top">
      <a class="brand" href={address("overview")} aria-label="topics, overview">
        <img src="console.svg" width="26" height="26" alt="" /> topics
      </a>
      <nav aria-label="Views">
        {VIEWS.map(([view, title]) => (
          <a href={address(view)} aria-current={place.view === view ? "page" : undefined}>{title}</a>
        ))}
      </nav>
      <Find place={place} />
      <div class="tools">
        {apiKey?.auth !== "off" && (
          <button type="button" class="plain" onClick={onKey}>{apiKey ? `Key: ${apiKey.name}` : "Key"}</button>
        )}
        <Theme />
        <button type="button" class="plain" onClick={onHelp} aria-label="Help and keys" title="Help and keys (?)">?</button>
      </div>
    </header>
  );
}

function Find({ place }) {
  const [text, setText] = useState(place.query.find ?? "");
  // What is being typed is newer than the address, which follows it.
  useEffect(() => {
    if (document.activeElement?.id !== "find") setText(place.view === "overview" ? place.query.find ?? "" : "");
  }, [place]);
  const submit = (event) => {
    event.preventDefault();
    go("overview", "", { find: text.trim() });
  };
  const typed = (event) => {
    setText(event.target.value);
    if (place.view === "overview") {
      history.replaceState(null, "", address("overview", "", { find: event.target.value.trim() }));
      dispatchEvent(new HashChangeEvent("hashchange"));
    }
  };
  return (
    <form class="find" role="search" onSubmit={submit}>
      <label class="hidden" for="find">Find topics whose name contains</label>
      <input id="find" type="search" placeholder="Find topics  ( / )" value={text} onInput={typed} autocomplete="off" spellcheck={false} />
    </form>
  );
}

function Theme() {
  const [theme, setTheme] = useState(chosenTheme());
  const names = { auto: "◐", light: "☀", dark: "☾" };
  return (
    <button type="button" class="plain" onClick={() => setTheme(nextTheme())} aria-label={`Colours: ${theme}`} title={`Colours: ${theme} (t)`}>
      {names[theme]}
    </button>
  );
}
