"""Stores of training data and runs, from farandole_spark.ml.store."""

from farandole_spark.ml.store import DBFSLocalStore, FilesystemStore, HDFSStore, LocalStore, S3Store, Store

AbstractFilesystemStore = Store
