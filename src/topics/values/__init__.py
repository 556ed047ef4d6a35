"""Values and the rules they obey: nothing here touches a disk or a network.

    environment -> Settings          request body -> TopicConfig          measurements -> Histogram
    a rule that was broken -> ApiError (rendered once, at the edge)
    the time of day -> Clock, of which tests have one that moves when told to

Every other room may import from here; this one imports nothing of ours.
"""
