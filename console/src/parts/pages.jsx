import { address } from "../address.js";

// Lists come in pages; where one begins is part of the address.
export function Pages({ view, query, next, label }) {
  if (!next && !query.after) return null;
  return (
    <nav class="pages" aria-label={label}>
      {query.after && <a href={address(view, "", { ...query, after: "" })}>« First page</a>}
      {next && <a href={address(view, "", { ...query, after: next })}>Next page »</a>}
    </nav>
  );
}
