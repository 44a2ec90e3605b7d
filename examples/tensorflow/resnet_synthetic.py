"""Measure the speed of training ResNet-50, or another of Keras's networks, on made-up images.

    farandole run -np 2 python examples/tensorflow/resnet_synthetic.py --steps 20

Needs farandole-tensorflow.
"""

from __future__ import annotations

import argparse
import time

import farandole_tensorflow as hvd
import tensorflow as tf

keras = tf.keras


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the speed of training ResNet-50.")
    parser.add_argument("--model", default="ResNet50", help="the network: a name in keras.applications, as MobileNetV2")
    parser.add_argument("--rounds", type=int, default=3, help="how often it is measured")
    parser.add_argument("--steps", type=int, default=10, help="in each round")
    parser.add_argument("--batch-size", type=int, default=32, help="images per step and worker")
    parser.add_argument("--image-size", type=int, default=224, help="pixels")
    parser.add_argument("--compression", choices=["none", "fp16", "bf16"], default="none", help="how gradients travel")
    return parser.parse_args()


def main() -> None:
    args = arguments()

    # 1. Find the other workers; choose this one's device.
    hvd.init()
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")

    # 2. Give each worker its share of the data.
    images = tf.random.uniform([args.batch_size, args.image_size, args.image_size, 3])
    labels = tf.random.uniform([args.batch_size], maxval=1000, dtype=tf.int64)

    # 3. Average the gradients of all workers.
    make_model = getattr(keras.applications, args.model)
    model = make_model(weights=None, input_shape=(args.image_size, args.image_size, 3))
    optimizer = keras.optimizers.SGD(0.01)
    optimizer.build(model.trainable_variables)
    cross_entropy = keras.losses.SparseCategoricalCrossentropy()
    compression = getattr(hvd.Compression, args.compression)

    @tf.function
    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = cross_entropy(labels, model(images, training=True))
        tape = hvd.DistributedGradientTape(tape, compression=compression)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(list(zip(gradients, model.trainable_variables, strict=True)))
        return loss

    # 4. Start everywhere from rank 0's values.
    hvd.broadcast_variables(model.weights, root_rank=0)

    # 5. Train, and say how fast; the first step makes the graph.
    step()
    for number in range(args.rounds):
        hvd.barrier()
        began = time.perf_counter()
        for _ in range(args.steps):
            loss = step()
        average_loss = hvd.allreduce(loss, name="loss").numpy()  # waits for the last step
        speed = args.steps * args.batch_size * hvd.size() / (time.perf_counter() - began)
        if hvd.rank() == 0:
            said = f"round {number + 1}: loss {average_loss:.3f}, {speed:.1f} images/s on {hvd.size()} workers"
            print(said, flush=True)


if __name__ == "__main__":
    main()
