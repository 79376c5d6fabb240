"""The ids that mean something to a decoder, and the classes that stand for ids."""

from structattn.models.embedding import NEVER_PREDICTED

PAD, BOS, EOS, UNK = 0, 1, 2, 3
FIRST_OUTPUT_ID = NEVER_PREDICTED  # class c of a model's logits stands for token id c + 2
EOS_CLASS, UNK_CLASS = EOS - FIRST_OUTPUT_ID, UNK - FIRST_OUTPUT_ID
