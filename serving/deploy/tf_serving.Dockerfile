# syntax=docker/dockerfile:1.7
# TF Serving as it is published, with jemalloc and without root. It holds no model. From the root of the repository:
#   docker build --file serving/deploy/tf_serving.Dockerfile --tag registry.example/rewriter-tf-serving:2.21.0-gpu .
# The version is that of tensorflow in constraints.txt, which exports the model. For machines without a GPU:
#   --build-arg TF_SERVING_IMAGE=tensorflow/serving:2.21.0 --tag registry.example/rewriter-tf-serving:2.21.0
ARG TF_SERVING_IMAGE=tensorflow/serving:2.21.0-gpu

FROM ${TF_SERVING_IMAGE}
# Without it, the memory of versions that were unloaded is not given back. Which version there is, is up to the base.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libjemalloc2 \
    && rm -rf /var/lib/apt/lists/*
# The root file system may be read-only; CUDA keeps what it compiles for a card that is newer than the image.
ENV HOME=/tmp \
    CUDA_CACHE_PATH=/tmp/cuda \
    LD_PRELOAD=libjemalloc.so.2
USER 10001:10001
EXPOSE 8500 8501
# There is no curl in the image. The metadata of a model are there once it answers; its status is there before.
HEALTHCHECK --interval=10s --timeout=5s --start-period=300s --retries=3 \
    CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/8501 && printf 'GET /v1/models/rewriter/metadata HTTP/1.0\\r\\n\\r\\n' >&3 && head -n 1 <&3 | grep -q ' 200 '"]
# It has no handler for SIGTERM and would sit out the grace period; whoever stops it lets the calls end first.
STOPSIGNAL SIGKILL
ENTRYPOINT ["tensorflow_model_server"]
