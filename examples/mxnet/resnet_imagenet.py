"""Train ResNet-50 of Gluon's model zoo on ImageNet, or measure its speed: alone, or on many workers.

    farandole run -np 2 python examples/mxnet/resnet_imagenet.py --steps 20
    farandole run -np 4 python examples/mxnet/resnet_imagenet.py --records train.rec --epochs 90

Needs farandole-mxnet. Without --records (a file that MXNet's tools/im2rec.py writes) the images are made up.
"""

from __future__ import annotations

import argparse
import sys
import time

import farandole_mxnet as hvd
import mxnet as mx
from mxnet import autograd, gluon


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train ResNet-50 on ImageNet.")
    parser.add_argument("--records", help="the images and labels, in MXNet's RecordIO format")
    parser.add_argument("--images", type=int, default=1281167, help="in an epoch, of all workers together")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, help="instead of as many as the epoch's images make")
    parser.add_argument("--batch-size", type=int, default=32, help="images per step and worker")
    parser.add_argument("--image-size", type=int, default=224, help="pixels")
    parser.add_argument("--learning-rate", type=float, default=0.0125, help="for one worker")
    parser.add_argument("--dtype", choices=["float32", "float16"], default="float32", help="float16: on a GPU only")
    parser.add_argument("--checkpoint", help="where rank 0 saves the trained model")
    return parser.parse_args()


def make_batches(args: argparse.Namespace, rank: int, size: int) -> mx.io.DataIter:
    shape = (3, args.image_size, args.image_size)
    if args.records is None:
        images = mx.nd.random.normal(shape=(args.batch_size, *shape))
        labels = mx.nd.random.randint(0, 1000, shape=(args.batch_size,)).astype("float32")
        return mx.io.NDArrayIter(images, labels, args.batch_size)
    return mx.io.ImageRecordIter(
        path_imgrec=args.records,
        data_shape=shape,
        batch_size=args.batch_size,
        num_parts=size,
        part_index=rank,
        shuffle=True,
        seed=42,
        rand_mirror=True,
        random_resized_crop=True,
        min_random_area=0.08,
        max_random_area=1.0,
        min_aspect_ratio=3 / 4,
        max_aspect_ratio=4 / 3,
        **{f"mean_{colour}": mean for colour, mean in zip("rgb", (123.68, 116.78, 103.94), strict=True)},
        **{f"std_{colour}": std for colour, std in zip("rgb", (58.4, 57.12, 57.38), strict=True)},
    )


def main() -> None:
    args = arguments()

    # 1. Find the other workers; choose this one's device.
    hvd.init()
    mx.random.seed(42)
    context = mx.gpu(hvd.local_rank()) if mx.context.num_gpus() else mx.cpu(hvd.local_rank())
    if args.dtype == "float16" and context.device_type == "cpu":
        print("resnet_imagenet.py: MXNet computes float16 on GPUs only, and there is none: leave --dtype out")
        sys.exit(2)

    # 2. Give each worker its share of the data. Parts of a file differ in length, and all workers take as many steps.
    batches = make_batches(args, hvd.rank(), hvd.size())
    steps_per_epoch = args.steps or args.images // (args.batch_size * hvd.size())

    # 3. Average the gradients of all workers; with more images per step the learning rate can be larger.
    model = gluon.model_zoo.vision.resnet50_v1(classes=1000)
    model.initialize(mx.init.MSRAPrelu(), ctx=context)
    model.cast(args.dtype)
    model.hybridize(static_alloc=True, static_shape=True)
    rate = args.learning_rate * hvd.size()
    all_steps = args.epochs * steps_per_epoch
    schedule = mx.lr_scheduler.CosineScheduler(all_steps, base_lr=rate, warmup_steps=all_steps // 20)
    optimizer = mx.optimizer.SGD(
        learning_rate=rate, momentum=0.9, wd=1e-4, lr_scheduler=schedule, multi_precision=args.dtype == "float16"
    )
    optimizer = hvd.DistributedOptimizer(optimizer)
    trainer = gluon.Trainer(model.collect_params(), optimizer, kvstore=None)

    # 4. Start everywhere from rank 0's values.
    hvd.broadcast_parameters(model.collect_params(), root_rank=0)

    # 5. Train, and say how fast.
    cross_entropy = gluon.loss.SoftmaxCrossEntropyLoss()
    for epoch in range(args.epochs):
        began = time.perf_counter()
        for _ in range(steps_per_epoch):
            batch = next_of(batches)
            images = batch.data[0].as_in_context(context).astype(args.dtype, copy=False)
            labels = batch.label[0].as_in_context(context)
            with autograd.record():
                loss = cross_entropy(model(images).astype("float32", copy=False), labels)
            loss.backward()
            trainer.step(args.batch_size)
        average_loss = hvd.allreduce(loss.mean(), name="loss").asscalar()  # waits for the last step
        speed = steps_per_epoch * args.batch_size * hvd.size() / (time.perf_counter() - began)
        if hvd.rank() == 0:
            said = f"epoch {epoch + 1}: loss {average_loss:.3f}, {speed:.1f} images/s on {hvd.size()} workers"
            print(said, flush=True)

    # 6. Save once.
    if hvd.rank() == 0 and args.checkpoint:
        model.save_parameters(args.checkpoint)


def next_of(batches: mx.io.DataIter) -> mx.io.DataBatch:
    try:
        return next(batches)
    except StopIteration:
        batches.reset()
        return next(batches)


if __name__ == "__main__":
    main()
