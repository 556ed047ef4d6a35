// Fills for what became of records, used by the band, by swatches and by bars. Colours come from the style sheet.
export function Patterns() {
  return (
    <svg class="patterns" width="0" height="0" aria-hidden="true" focusable="false">
      <defs>
        <pattern id="fill-live" width="4" height="4" patternUnits="userSpaceOnUse">
          <rect class="k-live" width="4" height="4" />
        </pattern>
        <pattern id="fill-deleted" width="6" height="6" patternUnits="userSpaceOnUse">
          <rect class="k-deleted-soft" width="6" height="6" />
          <circle class="k-deleted" cx="1.5" cy="1.5" r="1.2" />
          <circle class="k-deleted" cx="4.5" cy="4.5" r="1.2" />
        </pattern>
        <pattern id="fill-cap" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
          <rect class="k-cap-soft" width="6" height="6" />
          <rect class="k-cap" width="3" height="6" />
        </pattern>
        <pattern id="fill-ttl" width="6" height="6" patternUnits="userSpaceOnUse">
          <rect class="k-ttl-soft" width="6" height="6" />
          <rect class="k-ttl" width="6" height="2.5" />
        </pattern>
        <pattern id="fill-trim" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)">
          <rect class="k-trim-soft" width="6" height="6" />
          <rect class="k-trim" width="2" height="6" />
        </pattern>
        <pattern id="fill-lost" width="7" height="7" patternUnits="userSpaceOnUse">
          <rect class="k-lost" width="7" height="7" />
          <path class="k-lost-line" d="M0 0 7 7M7 0 0 7" />
        </pattern>
      </defs>
    </svg>
  );
}

export function Swatch({ kind }) {
  return (
    <svg class="swatch" width="14" height="14" aria-hidden="true" focusable="false">
      <rect width="14" height="14" rx="3" fill={`url(#fill-${kind})`} />
    </svg>
  );
}

export function Kind({ kind, children }) {
  return (
    <span class={`kind is-${kind}`}>
      <Swatch kind={kind} /> {children}
    </span>
  );
}
