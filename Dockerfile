# The project's own image: what `make install` installs, at one commit. Nothing but the commit gets in.
#   docker build --build-arg CUDA=0 --tag REGISTRY/rewardflow:0.2.0-cpu .
#   docker build --build-arg CUDA=1 --tag REGISTRY/rewardflow:0.2.0-cuda .
FROM python:3.11-slim-bookworm

# git: a run's commit; g++: what torch and vLLM compile when they start; libnuma1: vLLM on a CPU.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates g++ git libnuma1 make \
    && rm -rf /var/lib/apt/lists/*

# The repository belongs to root and is read by others; who commits data in a working directory has a name. /state is
# where volumes are mounted: a new volume of a container engine takes its owner.
RUN useradd --create-home --uid 1000 rewardflow \
    && install --directory --owner=rewardflow --group=rewardflow /state \
    && git config --system safe.directory '*' \
    && git config --system user.name rewardflow \
    && git config --system user.email rewardflow@localhost

# The history alone (.dockerignore): a file that is in no commit cannot be in the image either.
COPY .git /tmp/repository/.git
RUN git clone --quiet /tmp/repository /opt/rewardflow && rm -rf /tmp/repository
WORKDIR /opt/rewardflow

# 0: cpu.lock; 1: cuda.lock.
ARG CUDA=0
RUN --mount=type=cache,target=/tmp/cache \
    UV_CACHE_DIR=/tmp/cache/uv UV_LINK_MODE=copy PIP_CACHE_DIR=/tmp/cache/pip \
    make install CUDA=${CUDA} PYTHON=python3.11

ENV PATH=/opt/rewardflow/.venv/bin:$PATH \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 1000
CMD ["rewardflow", "--help"]
