// Asks again and again, one request at a time, and not while the page is hidden. What was shown stays until
// there is something newer: nothing flickers.
import { useCallback, useEffect, useRef, useState } from "preact/hooks";

export function usePoll(ask, everyMs, dependencies = []) {
  const [state, setState] = useState({ value: null, error: null, of: null });
  const again = useRef(() => {});
  const of = JSON.stringify(dependencies);
  useEffect(() => {
    const abort = new AbortController();
    let timer = 0;
    let busy = false;
    const turn = async () => {
      clearTimeout(timer);
      if (busy || abort.signal.aborted) return;
      if (!document.hidden) {
        busy = true;
        try {
          const value = await ask(abort.signal);
          if (!abort.signal.aborted) setState({ value, error: null, of });
        } catch (error) {
          if (abort.signal.aborted) return;
          setState((before) => ({ value: before.of === of ? before.value : null, error, of }));
        } finally {
          busy = false;
        }
      }
      if (everyMs && !abort.signal.aborted) timer = setTimeout(turn, everyMs);
    };
    again.current = turn;
    const seen = () => !document.hidden && turn();
    document.addEventListener("visibilitychange", seen);
    turn();
    return () => {
      abort.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, [of, everyMs]);
  const refresh = useCallback(() => again.current(), []);
  return { ...state, refresh, current: state.of === of };
}
