"""Estimators of Spark ML that train on several ranks, with the names and arguments of Horovod's.

    from farandole_spark.ml.torch import TorchEstimator     # also .keras.KerasEstimator, .lightning.TorchEstimator
    model = TorchEstimator(model=..., optimizer=..., loss=..., store=Store.create("/data"), ...).fit(frame)
    model.transform(other_frame)

The path of the data: `_prepare` writes the columns of the DataFrame as Parquet files, in Spark's tasks. `_shards`
decides which rows each rank reads. `_reader` turns them into batches of NumPy arrays, with which a framework trains.

    torch, keras, lightning    estimators and models                _torch_training, ...    training on the ranks
    _estimator, _model         their base classes                   _predict                `transform` in Spark's tasks
    _params, _model_params     parameters                           _persistence            `save` and `load`
    _prepare, _columns         DataFrame -> Parquet, its columns    _shards, _reader        Parquet -> a rank's batches
    store                      stores for data and checkpoints      _checkpoints            checkpoints to resume a run
    backend                    runs the ranks                       _parquet                existing Parquet files
"""
