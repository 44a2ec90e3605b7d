"""What the estimators have in common, from farandole_spark.ml."""
