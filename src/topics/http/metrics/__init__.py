"""What the server counts, as Prometheus text or as JSON.

    request ─▶ routes ─▶ scrape (one look at all topics) ─▶ figures (by room)
                      ─▶ family (name, kind, text, samples) ─▶ text or JSON

The rooms only count; how that is called and shown is known here.
"""
