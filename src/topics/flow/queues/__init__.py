"""Queues: topics whose records are jobs.

claim ─▶ registry (which queue) ─▶ dispatcher (when, which jobs) ─▶ queue ─▶ leases (until when)
ack, nack, extend ─▶ queue.settle ─▶ one deletion for all acks, or leases
too many deliveries ─▶ dead_letters, and back by a redrive        lost jobs ─▶ losses
`jobs` reads live jobs and cuts the text of a job from its stored row.
"""
