"""From memory and journal into files that never grow again.

    sealer (full runs into segments) ─▶ checkpoint (a snapshot; then journal and files that no snapshot
                                                    refers to are removed)

The sealer takes its runs from `Unsealed` in `log.run`. `segment_store` is how every other room reaches sealed
runs; it keeps the ones read lately ready.
"""
