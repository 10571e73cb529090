#!/usr/bin/env bash
# Manages a kind cluster of three nodes with the image trainer:cpu: scripts/kind.sh up|down|controllers|run COMMAND...
# run: uses and keeps an existing cluster; otherwise creates one for the command. kubectl's own settings stay unchanged.
# controllers: installs JobSet and Kueue, for the tests of whole-job admission.
# Settings, all optional: KIND_CLUSTER (its name, default trainer); KIND_NODE_IMAGE (default: kind's own);
# TRAINER_KIND_ADDONS (a folder with jobset.yaml and kueue.yaml, whose images are in Docker; default: their releases);
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
    controllers) controllers ;;
    down) kind delete cluster --name "$KIND_CLUSTER" ;;
    run) run "${@:2}" ;;
    *)
      echo "usage: scripts/kind.sh up|down|controllers|run COMMAND..." >&2
      exit 2
      ;;
  esac
}

up() {
  local image=()
  if [[ -n ${KIND_NODE_IMAGE:-} ]]; then image=(--image "$KIND_NODE_IMAGE"); fi
  # Of all nodes, as a network file system would be.
  local shared=/tmp/kind-$KIND_CLUSTER-shared
  mkdir -p "$shared"
  if ! kind get clusters 2>/dev/null | grep -qx "$KIND_CLUSTER"; then
    kind create cluster --name "$KIND_CLUSTER" ${image[@]+"${image[@]}"} --wait 120s --config - <<EOF
kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
nodes:
  - role: control-plane
  - {role: worker, extraMounts: [{hostPath: $shared, containerPath: /shared}]}
  - {role: worker, extraMounts: [{hostPath: $shared, containerPath: /shared}]}
EOF
  fi
  kind export kubeconfig --quiet --name "$KIND_CLUSTER"
  kubectl --context "kind-$KIND_CLUSTER" --namespace kube-system rollout status deployment/coredns --timeout 120s
  # Its tasks run on the two workers.
  kind load docker-image trainer:cpu --name "$KIND_CLUSTER" --nodes "$KIND_CLUSTER-worker,$KIND_CLUSTER-worker2"
}

controllers() {
  local name version file
  for name in jobset:v0.12.0 kueue:v0.15.1; do
    version=${name#*:}
    name=${name%:*}
    if [[ -n ${TRAINER_KIND_ADDONS:-} ]]; then
      kind load docker-image "$name:$version" --name "$KIND_CLUSTER" --nodes "$KIND_CLUSTER-control-plane"
      file=$TRAINER_KIND_ADDONS/$name.yaml
    else
      file=https://github.com/kubernetes-sigs/$name/releases/download/$version/manifests.yaml
    fi
    kubectl --context "kind-$KIND_CLUSTER" apply --server-side --filename "$file" >/dev/null
    # Tests stop the other nodes, and without Kueue's webhook nobody can create a pod.
    kubectl --context "kind-$KIND_CLUSTER" --namespace "$name-system" patch deployment "$name-controller-manager" --patch \
      '{"spec": {"template": {"spec": {"nodeSelector": {"node-role.kubernetes.io/control-plane": ""}, "tolerations": [{"operator": "Exists"}]}}}}'
  done
  for name in jobset kueue; do
    kubectl --context "kind-$KIND_CLUSTER" --namespace "$name-system" rollout status \
      "deployment/$name-controller-manager" --timeout 180s
  done
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
