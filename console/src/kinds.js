// What can become of a seq. Each has a colour and a pattern of its own: neither is needed to tell them apart.
export const KINDS = ["live", "deleted", "cap", "ttl", "trim", "lost"];

export const MISSING = KINDS.slice(1);

export const TITLES = {
  live: "Live",
  deleted: "Deleted",
  cap: "Evicted by a cap",
  ttl: "Expired",
  trim: "Lost in a router's source",
  lost: "Lost",
};

export const WHY = {
  live: "can be read.",
  deleted: "were deleted by request, or acknowledged in a queue. Readers pass over them in silence: nothing was lost.",
  cap: "were dropped because the topic's cap was reached. Readers who had not got that far are told of it.",
  ttl: "became older than the topic's TTL. Readers who had not got that far are told of it.",
  trim: "were gone from a router's source before they could be copied. Readers are told of it.",
  lost: "were promised and are gone: a crash took what was not yet on disk, a file was damaged, or the topic's class does not outlive a restart. Readers are told of it.",
};

// Loss is what no client asked for.
export const isLoss = (kind) => kind !== "live" && kind !== "deleted";
