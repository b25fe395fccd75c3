# syntax=docker/dockerfile:1.7
# The front service. From the root of the repository:
#   docker build --file serving/deploy/front.Dockerfile --tag registry.example/rewriter-front:0.14.0 .
# For a front of TF Serving, which never loads TensorFlow, leave it out; it is most of the image:
#   --build-arg WITHOUT=tensorflow --tag registry.example/rewriter-front:0.14.0-thin
# For a build that can be repeated years later, add the digest of the base: PYTHON_IMAGE=python:...@sha256:...
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
WORKDIR /src
# Holds for what pip needs to build the wheel too.
ENV PIP_CONSTRAINT=/src/constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/rewriter
ENV PATH=/opt/rewriter/bin:$PATH
COPY setup.cfg constraints.txt serving/deploy/requirements.py ./
ARG EXTRAS=serve,tracing
ARG WITHOUT=
RUN python requirements.py "$EXTRAS" "$WITHOUT" > requirements.txt \
    && pip install --requirement requirements.txt
COPY pyproject.toml README.md LICENSE ./
COPY rewriter/ rewriter/
COPY serving/ serving/
RUN pip wheel --no-deps --wheel-dir /wheels . \
    && pip install --no-deps --no-index /wheels/*.whl

FROM ${PYTHON_IMAGE}
# TensorFlow and gRPC allocate on many threads; glibc keeps what they free.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libjemalloc2=5.3.0-1 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin rewriter
COPY --from=build /opt/rewriter /opt/rewriter
COPY serving/deploy/healthcheck.py /opt/rewriter/
# The root file system may be read-only. In /tmp, jieba keeps its dictionary once it is read.
ENV PATH=/opt/rewriter/bin:$PATH \
    HOME=/tmp \
    LD_PRELOAD=libjemalloc.so.2 \
    PYTHONDONTWRITEBYTECODE=1 \
    TF_CPP_MIN_LOG_LEVEL=3
USER 10001:10001
EXPOSE 8600 8601
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --retries=3 \
    CMD ["python", "/opt/rewriter/healthcheck.py"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["rewriter"]
CMD ["serve"]
