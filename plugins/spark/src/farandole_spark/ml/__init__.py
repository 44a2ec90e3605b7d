"""Estimators of Spark ML that train on several ranks, with the names and arguments of Horovod's.

    from farandole_spark.ml.torch import TorchEstimator     # also .keras.KerasEstimator, .lightning.TorchEstimator
    model = TorchEstimator(model=..., optimizer=..., loss=..., store=Store.create("/data"), ...).fit(frame)
    model.transform(other_frame)

The path of the data: `_prepare` writes the columns of the DataFrame as Parquet, in Spark's tasks; `_shards` tells which
rows each rank reads; `_reader` turns them into batches of NumPy; the training of a framework consumes these.

    torch, keras, lightning    estimators and models                _torch_training, ...    what runs on the ranks
    _estimator, _model         what they have in common             _predict                `transform` in Spark's tasks
    _params, _model_params     parameters                           _persistence            `save` and `load`
    _prepare, _columns         DataFrame -> Parquet, its columns    _shards, _reader        Parquet -> a rank's batches
    store                      where data and checkpoints lie       _checkpoints            of a run, for its resume
    backend                    who runs the ranks                   _parquet                files that are there already
"""
