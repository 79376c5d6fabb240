"""Other libraries: models and attention for transformers, exports of trained runs, replay into trackers.

- ``interop.huggingface``: models of transformers with stacks, runs as transformers' models, attention for its registry.
- ``interop.export``: trained runs in the formats of other libraries.
- ``interop.harness``: runs as models of lm-evaluation-harness.
- ``interop.trackers``: events of a run in TensorBoard, MLflow and Weights & Biases.
"""
