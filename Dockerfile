# Lockkeeper with git. Terraform or OpenTofu is yours to choose: put the program on PATH in an image built from this
# one, or mount a folder with terraform1.9.8, tofu1.10.0, … and name it in LOCKKEEPER_TF_BIN_DIR.
#
#   docker build --build-arg COMMIT="$(git rev-parse HEAD)" -t lockkeeper .
#   docker run --init -p 4141:4141 -v lockkeeper:/var/lib/lockkeeper --env-file lockkeeper.env lockkeeper
#
# --init: children of Terraform that outlive it are handed to process 1, which has to collect them.

FROM rust:1.95-slim-bookworm AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends cmake g++ make \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /build

# The dependencies are a layer of their own: it is built again only when Cargo.toml or Cargo.lock change.
COPY Cargo.toml Cargo.lock ./
RUN mkdir -p src tests/it \
 && touch src/lib.rs tests/it/main.rs \
 && echo 'fn main() {}' > src/main.rs \
 && cargo build --release --locked \
 && rm -r src

COPY . .
ARG COMMIT=""
# The touch makes cargo see that these are not the empty files of the layer before.
RUN touch src/lib.rs src/main.rs \
 && LOCKKEEPER_COMMIT="$COMMIT" cargo build --release --locked --bin lockkeeper

FROM debian:bookworm-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates git openssh-client \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 1000 --create-home lockkeeper \
 && install -d -o lockkeeper -g lockkeeper -m 0700 /var/lib/lockkeeper
COPY --from=build /build/target/release/lockkeeper /usr/local/bin/lockkeeper

USER lockkeeper
ENV LOCKKEEPER_DATA_DIR=/var/lib/lockkeeper
VOLUME /var/lib/lockkeeper
EXPOSE 4141
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=6s --start-period=30s CMD ["lockkeeper", "healthcheck"]
ENTRYPOINT ["lockkeeper"]
CMD ["server"]
