// What the key may do. What it may not do is not offered.
import { createContext } from "preact";
import { useContext } from "preact/hooks";

export const Access = createContext(null);

export function useMay() {
  const key = useContext(Access);
  return (scope) => key !== null && (key.auth === "off" || key.scopes.includes(scope));
}
