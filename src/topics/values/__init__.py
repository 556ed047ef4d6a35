"""Pure values: no I/O, no clock reads, no state.

    environment -> Settings          request body -> TopicConfig
    a rule that was broken -> ApiError (rendered once, at the edge)

Every other room may import from here; this one imports nothing of ours.
"""
