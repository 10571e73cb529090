#!/bin/sh
# install.sh VENV LOCK: installs the locked packages without the files not needed at run time. Figures are megabytes, for
# TensorFlow 2.21; images/README.md has the reasons.
set -eu
venv=$1 lock=$2
site=$(echo "$venv"/lib/python3.*/site-packages)

if [ -f /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi
python3 -m venv /tmp/pip
# --no-deps: the lock is complete except for packages left out deliberately (Makefile, FOR_IMAGES).
/tmp/pip/bin/pip --python "$venv/bin/python" install --no-cache-dir --disable-pip-version-check --no-compile \
  --no-deps --require-hashes --only-binary :all: --requirement "$lock"

# Only for compiling: headers (290 in tensorflow, 60 in nvidia), static libraries (120 in nvidia), sources, stubs.
rm -rf "$site"/tensorflow/include "$site"/tensorflow/xla_aot_runtime_src "$site"/nvidia/*/include
find "$site" -type f \( -name '*.a' -o -name '*.pyi' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.c' \) -delete
# Extensions that only converters load: tf2xla's (18), StableHLO's (25). TFLite's is loaded with tf.compat.v1.
rm -f "$site"/tensorflow/compiler/tf2xla/ops/_xla_ops.so \
  "$site"/tensorflow/compiler/mlir/stablehlo/stablehlo_extension.so
# TensorBoard's pages (7), where only its summaries are wanted: tf.summary is made of them.
if [ -d "$site/tensorflow" ]; then
  rm -r "$site"/tensorboard/webfiles.zip "$site"/tensorboard/plugins/projector/tf_projector_plugin
fi
# Other backends of Keras (3), what only TensorBoard's pages import (1), pydantic's first version (1), Fortran for NumPy
# (1), and the list of TensorFlow's 20,000 files (2), which only replacing it would need.
rm -rf "$site"/keras/src/backend/jax "$site"/keras/src/backend/torch "$site"/keras/src/backend/openvino \
  "$site"/keras/src/backend/numpy "$site"/pydantic/v1 "$site"/numpy/f2py "$site"/tensorflow*.dist-info/RECORD
if [ -d "$site/tensorflow" ]; then rm -r "$site"/tensorboard/_vendor; fi
# The libraries' own tests (28).
find "$site" \( -path '*/numpy/*' -o -path '*/h5py/*' -o -path '*/tensorflow/*' \) -type d \
  \( -name tests -o -name kernel_tests -o -name memory_tests \) -prune -exec rm -rf {} +
rm -rf "$site"/tensorflow/python/framework/test_ops.py "$site"/tensorflow/tools/pip_package
find "$site" \( -path '*/keras/*' -o -path '*/tensorboard/*' \) -type f -name '*_test.py' -delete
# NVIDIA's compilers (200), but for what XLA calls and reads: ptxas and libdevice.
find "$site" -path '*/nvidia/*/bin/*' -type f ! -name ptxas -delete
find "$site" -path '*/nvidia/*/nvvm/*' -type f ! -name 'libdevice*' -delete
# What TensorFlow never loads: cuSOLVER for several GPUs in one call (190), NVRTC's other build (110), the profiler's
# hardware counters (35), and drop-ins for FFTW and BLAS. tests/compose/test_images.py looks at what it does load.
rm -f "$site"/nvidia/cusolver/lib/libcusolverMg.so* "$site"/nvidia/cuda_nvrtc/lib/*.alt.so* \
  "$site"/nvidia/cuda_cupti/lib/libnvperf* "$site"/nvidia/cuda_cupti/lib/libpcsampling* \
  "$site"/nvidia/cuda_cupti/lib/libcheckpoint* "$site"/nvidia/cufft/lib/libcufftw* "$site"/nvidia/cublas/lib/libnvblas*
# Symbols (200 in libtensorflow_cc). Not of libraries that auditwheel has rewritten: they break.
find "$site" -type f -name '*.so*' ! -path '*.libs/*' ! -path '*/numpy/*' ! -path '*/h5py/*' ! -path '*/nvidia/*' \
  -exec strip --strip-unneeded {} +

# By content, not by time: the same packages give the same layer. Templates for other Pythons do not compile.
python3 -m compileall -q --invalidation-mode unchecked-hash "$site" || true
