# Lockkeeper with git. Terraform or OpenTofu is yours to choose; an image with one is two lines more:
#
#   FROM hashicorp/terraform:1.9.8 AS terraform
#   FROM lockkeeper
#   COPY --from=terraform /bin/terraform /usr/local/bin/terraform
#
# Several versions side by side: name them terraform1.9.8, tofu1.10.0, … in a folder, and the folder in
# LOCKKEEPER_TF_BIN_DIR.
#
#   docker build --build-arg COMMIT="$(git rev-parse HEAD)" -t lockkeeper .
#   docker run -p 4141:4141 -v lockkeeper:/var/lib/lockkeeper --env-file lockkeeper.env lockkeeper

FROM rust:1.95-slim-bookworm AS build
WORKDIR /build

# The dependencies are a layer of their own: it is built again only when a Cargo.toml or Cargo.lock change. Every target
# that they name needs a file.
COPY Cargo.toml Cargo.lock ./
COPY crates/accounts/Cargo.toml crates/accounts/
COPY crates/emulator/Cargo.toml crates/emulator/
COPY crates/model/Cargo.toml crates/model/
COPY crates/policy/Cargo.toml crates/policy/
COPY crates/registry/Cargo.toml crates/registry/
COPY crates/rules/Cargo.toml crates/rules/
RUN mkdir -p src tests/it benches \
 && touch src/lib.rs tests/it/main.rs benches/main.rs \
 && for crate in crates/*; do mkdir "$crate/src" && touch "$crate/src/lib.rs"; done \
 && echo 'fn main() {}' > src/main.rs \
 && cargo build --release --locked --bin lockkeeper \
 && rm -r src crates/*/src

COPY . .
ARG COMMIT=""
# The touch makes cargo see that these are not the empty files of the layer before.
RUN touch src/lib.rs src/main.rs crates/*/src/lib.rs \
 && LOCKKEEPER_COMMIT="$COMMIT" cargo build --release --locked --bin lockkeeper

FROM debian:bookworm-slim
# openssh-client is for credentials with an SSH key, and for modules that Terraform fetches by ssh. There is no bubblewrap:
# containers may rarely make namespaces, and Landlock, the default of --sandbox, needs none.
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates git git-lfs openssh-client tini \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 1000 --create-home lockkeeper \
 && install -d -o lockkeeper -g lockkeeper -m 0700 /var/lib/lockkeeper
COPY LICENSE /usr/share/doc/lockkeeper/LICENSE
COPY --from=build /build/target/release/lockkeeper /usr/local/bin/lockkeeper

ARG COMMIT=""
LABEL org.opencontainers.image.title="Lockkeeper" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="$COMMIT"
# By number, so that Kubernetes can see that it is not root.
USER 1000:1000
ENV LOCKKEEPER_DATA_DIR=/var/lib/lockkeeper
VOLUME /var/lib/lockkeeper
EXPOSE 4141
STOPSIGNAL SIGTERM
# Asks the port that LOCKKEEPER_PORT says: a port given as a flag is not seen here.
HEALTHCHECK --interval=30s --timeout=6s --start-period=30s CMD ["lockkeeper", "healthcheck"]
# tini collects processes whose parent was killed, and hands signals to the server alone: it decides what a run is told.
# -s keeps it quiet under `docker run --init`.
ENTRYPOINT ["tini", "-s", "--", "lockkeeper"]
CMD ["server"]
