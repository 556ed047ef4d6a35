import { useEffect, useRef } from "preact/hooks";
import { SHORTCUTS } from "../keyboard.js";
import { KINDS, TITLES, WHY } from "../kinds.js";
import { Kind } from "./patterns.jsx";

export function Help({ onClose }) {
  const dialog = useRef(null);
  useEffect(() => dialog.current.showModal(), []);
  return (
    <dialog ref={dialog} onClose={onClose} aria-labelledby="help-title">
      <h2 id="help-title">Keys, and what the patterns mean</h2>
      <div class="columns">
        <table>
          <caption class="hidden">Keys</caption>
          <tbody>
            {SHORTCUTS.map(([key, what]) => (
              <tr>
                <th scope="row"><kbd>{key}</kbd></th>
                <td>{what}</td>
              </tr>
            ))}
          </tbody>
        </table>
        <dl>
          {KINDS.map((kind) => (
            <>
              <dt><Kind kind={kind}>{TITLES[kind]}</Kind></dt>
              <dd>These records {WHY[kind]}</dd>
            </>
          ))}
        </dl>
      </div>
      <form method="dialog"><button>Close</button></form>
    </dialog>
  );
}
