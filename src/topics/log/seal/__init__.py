"""From memory and journal into files that never grow again.

    unsealed (what only the journal has) ─▶ sealer (full runs into segments)
        ─▶ checkpoint (snapshot_state, then journal and files that no snapshot refers to are let go)

`segment_store` is how every other room reaches sealed runs; it keeps the ones read lately at hand.
"""
