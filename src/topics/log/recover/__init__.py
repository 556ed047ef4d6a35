"""From files back to topics, after a stop or a crash.

    newest intact snapshot ─▶ reload (journal below it: only record data is missing)
                           ─▶ replay (journal above it: everything takes effect again)
                           ─▶ lost_frames (what cannot be read becomes a hole, and no seq is used twice)

`small_frames` joins single writes, so that replaying a million of them costs little more than a few thousand.
"""
