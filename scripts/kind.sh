#!/usr/bin/env bash
# Manages a kind cluster of three nodes with the image trainer:cpu: scripts/kind.sh up|down|run COMMAND...
# run: uses and keeps an existing cluster; otherwise creates one for the command. kubectl's own settings stay unchanged.
# Settings, all optional: KIND_CLUSTER (its name, default trainer); KIND_NODE_IMAGE (default: kind's own);
# KUBECONFIG (where kubectl finds the cluster; default ~/.kube/config).
set -o errexit -o nounset -o pipefail

export KIND_CLUSTER=${KIND_CLUSTER:-trainer}

main() {
  local program
  for program in docker kind kubectl; do
    command -v "$program" >/dev/null || {
      echo "kind: the command $program is missing; see https://kind.sigs.k8s.io/docs/user/quick-start" >&2
      exit 16
    }
  done
  case ${1:-} in
    up) up ;;
    down) kind delete cluster --name "$KIND_CLUSTER" ;;
    run) run "${@:2}" ;;
    *)
      echo "usage: scripts/kind.sh up|down|run COMMAND..." >&2
      exit 2
      ;;
  esac
}

up() {
  local image=()
  if [[ -n ${KIND_NODE_IMAGE:-} ]]; then image=(--image "$KIND_NODE_IMAGE"); fi
  if ! kind get clusters 2>/dev/null | grep -qx "$KIND_CLUSTER"; then
    kind create cluster --name "$KIND_CLUSTER" ${image[@]+"${image[@]}"} --wait 120s --config - <<'EOF'
kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
nodes: [{role: control-plane}, {role: worker}, {role: worker}]
EOF
  fi
  kind export kubeconfig --quiet --name "$KIND_CLUSTER"
  kubectl --context "kind-$KIND_CLUSTER" --namespace kube-system rollout status deployment/coredns --timeout 120s
  # Its tasks run on the two workers.
  kind load docker-image trainer:cpu --name "$KIND_CLUSTER" --nodes "$KIND_CLUSTER-worker,$KIND_CLUSTER-worker2"
}

run() {
  KUBECONFIG=$(mktemp)
  export KUBECONFIG
  # shellcheck disable=SC2064 # now, not at the end
  if kind get clusters 2>/dev/null | grep -qx "$KIND_CLUSTER"; then
    trap "rm -f $KUBECONFIG" EXIT
  else
    trap "kind delete cluster --name $KIND_CLUSTER; rm -f $KUBECONFIG" EXIT
  fi
  up
  "$@"
}

main "$@"
