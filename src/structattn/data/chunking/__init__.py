"""Text chunking: sentences whose words have part-of-speech tags and chunk tags, in the format of CoNLL-2000."""

from structattn.data.chunking.majority import MajorityTags
from structattn.data.chunking.reading import ChunkedSentence, read_chunked_sentences

__all__ = ["ChunkedSentence", "MajorityTags", "read_chunked_sentences"]
