#!/usr/bin/env bash
# Builds the images: scripts/images.sh [cpu] [cuda] [tensorboard] [track] [supervisor]     all without an argument
# Settings, all optional: PLATFORM (linux/amd64 or linux/arm64; default this machine's; the tags are the same); BASE_IMAGE
# (default debian:trixie-slim); TRAINER_DATA_DIR (a folder with mnist.npz, taken instead of the published file);
# BUILD_FLAGS (more words for `docker build`, as --network=host or --secret id=ca,src=FILE for the certificates of a
# proxy).
set -o errexit -o nounset -o pipefail

main() {
  cd "$(dirname "${BASH_SOURCE[0]}")/.."
  command -v docker >/dev/null || {
    echo "images: the command docker is missing; see https://docs.docker.com/engine/install" >&2
    exit 16
  }
  local platform=${PLATFORM:-linux/$(uname -m)} available=() flags=() variant
  platform=${platform/x86_64/amd64} platform=${platform/aarch64/arm64}
  case $platform in
    linux/amd64) available=(cpu cuda tensorboard track supervisor) ;;
    linux/arm64) available=(cpu tensorboard track supervisor) ;; # TensorFlow's wheels for arm64 are without CUDA
    *)
      echo "images: PLATFORM $platform: must be linux/amd64 or linux/arm64, for which TensorFlow has wheels" >&2
      exit 2
      ;;
  esac
  [[ $# -gt 0 ]] || set -- "${available[@]}"
  for variant in "$@"; do
    [[ " ${available[*]} " == *" $variant "* ]] || {
      echo "images: $variant: must be one of ${available[*]} on $platform" >&2
      exit 2
    }
  done
  read -r -a flags <<<"${BUILD_FLAGS:-}"
  if [[ -n ${PLATFORM:-} ]]; then flags+=(--platform "$PLATFORM"); fi
  if [[ -n ${BASE_IMAGE:-} ]]; then flags+=(--build-arg "BASE_IMAGE=$BASE_IMAGE"); fi
  if [[ -f ${TRAINER_DATA_DIR:-}/mnist.npz ]]; then
    # A folder of its own: the whole of it is sent to the builder.
    mnist=$(mktemp -d)
    trap 'rm -rf "$mnist"' EXIT
    cp "$TRAINER_DATA_DIR/mnist.npz" "$mnist"
    flags+=(--build-context "mnist=$mnist")
  fi
  for variant in "$@"; do
    docker build --file images/Dockerfile --target "$variant" --tag "trainer:$variant" \
      --label "org.opencontainers.image.revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)" \
      --label "org.opencontainers.image.version=$(sed -n 's/__version__ = "\(.*\)"/\1/p' trainer/__init__.py)" \
      ${flags[@]+"${flags[@]}"} . # an empty array counts as unset in macOS' bash 3.2
  done
}

main "$@"
