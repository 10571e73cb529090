# Included by the Makefile. A checkout beside a folder of shared data finds MNIST there; elsewhere it is downloaded and checked.
ifneq ($(wildcard ../shared/data/.),)
export TRAINER_DATA_DIR ?= $(abspath ../shared/data)
endif

# A build that reaches the package index only with this machine's network and certificates, and a node image that was
# built here, for no image registry is reached.
ifneq ($(wildcard ../shared/ci/setup),)
export BUILD_FLAGS ?= --network=host --secret id=ca,src=/etc/ssl/certs/ca-certificates.crt
export KIND_NODE_IMAGE ?= kindest/node:v1.34.4
export TRAINER_KIND_ADDONS ?= /var/cache/kind-node
# 16 minutes on a machine that has nothing; what was compiled is kept in that folder by version. Never twice at once.
KIND_SETUP := kind-setup
.PHONY: kind-setup
kind-setup:
	flock --close /tmp/trainer-kind-setup.lock ../shared/ci/setup kind jobset kueue
endif
