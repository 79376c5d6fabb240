"""Reading files that may be damaged."""

import tracemalloc

from structattn.support.reading import read_bytes


def test_reading_allocates_the_size_of_the_file_not_the_limit(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 1000)
    tracemalloc.start()
    try:
        assert read_bytes(path, 1 << 28) == b"x" * 1000
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
