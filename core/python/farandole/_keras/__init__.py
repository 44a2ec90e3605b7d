"""Keras, written once for all frameworks: optimizers that reduce gradients, callbacks, values, loading of models.

A plugin whose framework Keras can run on says in a `Framework` what its tensors need, and its module `keras` is made of
what `build` returns. Keras 3 and Keras 2 are both meant. Nothing here imports Keras, or a framework.

    farandole.keras --resolves to--> farandole_<framework>.keras --build--> farandole._keras
"""
