#!/usr/bin/env bash
# A Kubernetes of three nodes in containers, with the image trainer:cpu on it: scripts/kind.sh up|down
# Settings, all optional: KIND_CLUSTER (its name, default trainer); KIND_NODE_IMAGE (default: kind's own);
# KUBECONFIG (where kubectl finds the cluster; default ~/.kube/config).
set -o errexit -o nounset -o pipefail

readonly CLUSTER=${KIND_CLUSTER:-trainer}

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
    down) kind delete cluster --name "$CLUSTER" ;;
    *)
      echo "usage: scripts/kind.sh up|down" >&2
      exit 2
      ;;
  esac
}

up() {
  local image=()
  if [[ -n ${KIND_NODE_IMAGE:-} ]]; then image=(--image "$KIND_NODE_IMAGE"); fi
  if ! kind get clusters 2>/dev/null | grep -qx "$CLUSTER"; then
    kind create cluster --name "$CLUSTER" "${image[@]}" --wait 120s --config - <<'EOF'
kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
nodes: [{role: control-plane}, {role: worker}, {role: worker}]
EOF
  fi
  kind export kubeconfig --quiet --name "$CLUSTER"
  kubectl --context "kind-$CLUSTER" --namespace kube-system rollout status deployment/coredns --timeout 120s
  # Its tasks run on the two workers.
  kind load docker-image trainer:cpu --name "$CLUSTER" --nodes "$CLUSTER-worker,$CLUSTER-worker2"
}

main "$@"
