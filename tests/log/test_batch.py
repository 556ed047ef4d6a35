"""What a batch knows about its rows without looking at them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from topics.log.batch import parse_append, row_ends


@given(
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=120),
    first_seq=st.sampled_from([1, 5, 9, 10, 95, 99, 990, 12_345, 99_990]),
    node=st.sampled_from(["", ',"node":"n"', ',"meta":{"k":1}']),
)
def test_rows_end_where_their_newlines_are(sizes: list[int], first_seq: int, node: str) -> None:
    records = ",".join(f'{{"data":"{"x" * size}"{node if size % 2 else ""}}}' for size in sizes)
    batch = parse_append(f'{{"records":[{records}]}}'.encode()).batch
    rows = batch.render(first_seq, 1_760_011_200_450)
    assert batch.row_ends(rows).tolist() == row_ends(rows, len(sizes)).tolist()
