"""The figures of the server, as Prometheus text or as JSON.

    request ─▶ routes ─▶ figures: a scrape (one look at all topics), families of samples ─▶ text or JSON

The rooms only count; how that is called and shown is known here.
"""
