"""The trained model in the vehicle: export, streaming prediction, error bars, trips and range.

`predictor`, `session`, `clock`, `interval`, `bars`, `trips`, `route`, `range` and `card`
need numpy and onnxruntime only.
"""
