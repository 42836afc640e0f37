# epsim: one flat Makefile. `make help` lists the targets, `make V=1` shows the commands.
#
# Everything built lands in $(BUILD). Objects depend on a record of the flags they were made
# with, so changing CFLAGS, STATIC, CUDA or CC rebuilds what it touches. Nothing here prints
# when there is nothing to do.
.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory
SHELL := /bin/sh

VERSION := 0.1.0
BUILD ?= build
PREFIX ?= /usr/local
CFLAGS ?= -O2 -g
STATIC ?= 0
CUDA ?= auto
WERROR ?=
ifeq ($(origin CC),default)
CC := gcc
endif
Q := $(if $(V),,@)
say = $(if $(V),,@echo '  $(1)	$(2)')

# --- flags ---------------------------------------------------------------------------------
WARN := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wcast-qual -Wcast-align \
        -Wstrict-prototypes -Wmissing-prototypes -Wundef -Wvla -Wformat=2 -Wwrite-strings \
        -Wswitch-enum -Wc++-compat \
        $(if $(findstring clang,$(CC)),-Wno-string-conversion) # assert(condition && "words") is fine
EPSIM_CFLAGS := -std=c11 -D_GNU_SOURCE -I. -I$(BUILD) -UNDEBUG -ffp-contract=off -fno-math-errno \
        -fPIC -pthread -MMD -MP $(WARN) $(WERROR)

# The Debian archives need nothing beyond libm and libpthread themselves.
THIRD_PARTY := -lyaml -ljansson -lsqlite3
CHECK_LIBS ?= -lcheck_pic -lsubunit

# --- CUDA: 1 when asked for (or auto), nvcc is there and there are kernels ---------------------
NVCC ?= $(firstword $(wildcard $(addsuffix /nvcc,$(subst :, ,$(PATH)) /usr/local/cuda/bin)))
NVCCFLAGS ?= -O3 -lineinfo
EPSIM_NVCCFLAGS := -std=c++17 -gencode=arch=compute_90a,code=sm_90a --fmad=false -I. -I$(BUILD) \
        -Xcompiler -fPIC,-Wall,-Wextra $(if $(WERROR),-Werror all-warnings)
CUDA_SRC := $(wildcard kernels/*.cu)
ifeq ($(filter auto 0 1,$(CUDA)),)
$(error CUDA is '$(CUDA)': auto, 0 or 1)
endif
ifeq ($(CUDA),1)
ifeq ($(NVCC),)
$(error CUDA=1, but there is no nvcc in PATH or in /usr/local/cuda/bin (NVCC=FILE names one))
endif
endif
HAVE_CUDA := $(if $(and $(filter auto 1,$(CUDA)),$(NVCC),$(CUDA_SRC)),1,0)
ifeq ($(HAVE_CUDA),1)
CUDA_LIB := $(patsubst %/bin/nvcc,%/lib64,$(realpath $(NVCC)))
THIRD_PARTY := -L$(CUDA_LIB) -lcudart_static $(THIRD_PARTY) -lstdc++
endif
ifeq ($(STATIC),1)
LIBS := -Wl,-Bstatic $(THIRD_PARTY) -Wl,-Bdynamic
else
LIBS := $(THIRD_PARTY)
endif
LIBS += -lm -ldl -lrt -pthread

# --- sources -------------------------------------------------------------------------------
REF_SRC := $(wildcard ref/*.c)
LIB_SRC := $(REF_SRC) $(wildcard fabric/*.c traces/*.c sim/*.c)
ifeq ($(HAVE_CUDA),1)
LIB_SRC += $(wildcard kernels/*.c)
endif
TOOL_SRC := $(filter-out tools/demo_trace.c tools/peers_simgrid.c,$(wildcard tools/*.c))
SUITES := $(patsubst tests/test_%.c,%,$(sort $(wildcard tests/test_*.c)))
TEST_SRC := $(SUITES:%=tests/test_%.c) $(wildcard tests/main.c tests/support.c)
GPU_SUITES := $(filter-out main,$(patsubst tests/gpu_%.c,%,$(sort $(wildcard tests/gpu_*.c))))
GPU_TEST_OBJ := $(patsubst %,$(BUILD)/tests/gpu_%.o,$(GPU_SUITES) main) $(BUILD)/tests/support.o
GEN_SRC := $(addprefix $(BUILD)/gen/,machines.c models.c schema.c style.c cases.c)
GEN_HEADERS := $(addprefix $(BUILD)/gen/,config.h version.h embedded.h suites.inc gpu_suites.inc)

object = $(patsubst %.c,$(BUILD)/%.o,$(1))
LIB_OBJ := $(call object,$(LIB_SRC)) $(GEN_SRC:.c=.o)
ifeq ($(HAVE_CUDA),1)
LIB_OBJ += $(CUDA_SRC:%.cu=$(BUILD)/%.cu.o)
endif
REF_OBJ := $(call object,$(REF_SRC))
REF_LIBS := $(BUILD)/libepsim_ref.a $(BUILD)/libepsim_ref.so.0
TOOL_OBJ := $(call object,$(TOOL_SRC))
TEST_OBJ := $(call object,$(TEST_SRC))
PLUGIN_OBJ := $(patsubst %,$(BUILD)/tests/plugin_%.o,example broken ref v2 inner)
FUZZ_OBJ := $(call object,$(wildcard tests/fuzz_*.c))

# --- the program -----------------------------------------------------------------------------
all: $(BUILD)/epsim ## build $(BUILD)/epsim (CUDA=auto|0|1, STATIC=1, WERROR=-Werror, V=1)

$(BUILD)/epsim: $(TOOL_OBJ) $(BUILD)/libepsim.a $(BUILD)/flags.link
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) -o $@ $(TOOL_OBJ) $(BUILD)/libepsim.a $(LIBS)

$(BUILD)/libepsim.a: $(LIB_OBJ) $(BUILD)/flags.link
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcs $@ $(LIB_OBJ)

objects: $(LIB_OBJ) $(TOOL_OBJ) $(TEST_OBJ) $(GPU_TEST_OBJ) $(BUILD)/tools/demo_trace.o $(FUZZ_OBJ) $(PLUGIN_OBJ) ## compile everything, link nothing

$(BUILD)/%.o: %.c $(BUILD)/flags.compile | $(GEN_HEADERS) $(BUILD)/packages.ok
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D) && $(CC) $(EPSIM_CFLAGS) $(CFLAGS) -c $< -o $@

$(BUILD)/gen/%.o: $(BUILD)/gen/%.c $(BUILD)/flags.compile | $(GEN_HEADERS) $(BUILD)/packages.ok
	$(Q)$(CC) $(EPSIM_CFLAGS) $(CFLAGS) -c $< -o $@

$(BUILD)/%.cu.o: %.cu $(BUILD)/flags.nvcc | $(GEN_HEADERS)
	$(call say,NVCC,$<)
	$(Q)mkdir -p $(@D) && $(NVCC) $(EPSIM_NVCCFLAGS) $(NVCCFLAGS) -MD -MP -MF $(@:.o=.d) -c $< -o $@

# A suite's one export is declared by tests/main.c, from the list of file names.
$(BUILD)/tests/test_%.o: EPSIM_CFLAGS += -Wno-missing-prototypes
$(BUILD)/tests/support.o: EPSIM_CFLAGS += -DTEST_TREE='"$(CURDIR)"'

-include $(wildcard $(patsubst %.o,%.d,$(LIB_OBJ) $(TOOL_OBJ) $(TEST_OBJ) $(GPU_TEST_OBJ))) \
    $(wildcard $(BUILD)/tests/plugin_*.d)

# --- generated files: rewritten only when their content changes ---------------------------------
# $(call keep,COMMAND): run COMMAND, put its output into $@ if that differs from what is there.
keep = @mkdir -p $(@D) && { $(1); } > $@.new && \
       if cmp -s $@.new $@; then rm -f $@.new; else mv $@.new $@; fi

$(BUILD)/flags.compile: FORCE
	$(call keep,echo '$(CC) $(EPSIM_CFLAGS) $(CFLAGS)')
$(BUILD)/flags.link: FORCE
	$(call keep,echo '$(CC) $(CFLAGS) $(LIB_OBJ) $(LIBS) $(CHECK_LIBS)')
$(BUILD)/flags.nvcc: FORCE
	$(call keep,echo '$(NVCC) $(EPSIM_NVCCFLAGS) $(NVCCFLAGS)')

# The commit is asked only when this folder is the top of the repository: a tarball unpacked
# inside another project must not claim that project's commit.
$(BUILD)/gen/version.h: FORCE
	$(call keep,commit=unknown; if [ -e .git ]; then \
	    commit=`git describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null` || commit=unknown; fi; \
	    echo '#define EPSIM_VERSION "$(VERSION)"'; echo "#define EPSIM_COMMIT \"$$commit\"")

# EPSIM_CUDA: are the kernels linked? EPSIM_KERNELS_DIGEST: 16 hex digits over their sources, which
# the text about them is none of.
KERNEL_FILES := $(sort $(filter-out %.md,$(wildcard kernels/*)) $(wildcard ref/mathfn.h))
$(BUILD)/gen/config.h: FORCE
	$(call keep,echo '#define EPSIM_CUDA $(HAVE_CUDA)'; \
	    digest=`sha256sum /dev/null $(KERNEL_FILES) | sha256sum | cut -c1-16`; \
	    echo "#define EPSIM_KERNELS_DIGEST \"$$digest\"")

$(BUILD)/gen/suites.inc: FORCE
	$(call keep,for suite in $(SUITES); do echo "SUITE($$suite)"; done)

$(BUILD)/gen/gpu_suites.inc: FORCE
	$(call keep,for suite in $(GPU_SUITES); do echo "SUITE($$suite)"; done)

$(BUILD)/gen/embedded.h: tools/embed.sh
	@mkdir -p $(@D) && tools/embed.sh --header > $@
MACHINES := $(sort $(wildcard fabric/machines/*.yaml))
MODELS := $(sort $(wildcard sim/models/*.yaml))
SCHEMA := $(wildcard traces/schema.sql)
STYLE := $(wildcard traces/report.css)
CASES := $(wildcard sim/cases.csv)
$(BUILD)/gen/embedded.list: FORCE
	$(call keep,echo $(MACHINES) $(MODELS) $(SCHEMA) $(STYLE) $(CASES))
embed = @tools/embed.sh $(1) > $@
$(BUILD)/gen/machines.c: tools/embed.sh $(BUILD)/gen/embedded.list $(MACHINES)
	$(call embed,embedded_machines $(MACHINES))
$(BUILD)/gen/models.c: tools/embed.sh $(BUILD)/gen/embedded.list $(MODELS)
	$(call embed,embedded_models $(MODELS))
$(BUILD)/gen/schema.c: tools/embed.sh $(BUILD)/gen/embedded.list $(SCHEMA)
	$(call embed,embedded_schema $(SCHEMA))
$(BUILD)/gen/style.c: tools/embed.sh $(BUILD)/gen/embedded.list $(STYLE)
	$(call embed,embedded_style $(STYLE))
$(BUILD)/gen/cases.c: tools/embed.sh $(BUILD)/gen/embedded.list $(CASES)
	$(call embed,embedded_cases $(CASES))

# The machine files' costs come from measurements: one fit of all of them, low-latency numbers
# first. Fits start from what "fitted from" says, so they give the same files whatever stands.
FITTED := h100-hgx h200-hgx h200-pair b200-hgx
comma := ,
space := $(subst ,, )
fit = $(BUILD)/epsim calibrate --plain --measured "$(EPSIM_DATA)/measured/calibrate.csv" --mode $(1) \
    --rounds $(3) \
    --machine $(subst $(space),$(comma),$(FITTED:%=$(2)/%.yaml)) -o $(BUILD)/fitted
fitted: $(BUILD)/epsim
	@test -r "$(EPSIM_DATA)/measured/calibrate.csv" || \
	    { echo "machines: EPSIM_DATA=DIR must name a folder with measured/calibrate.csv"; exit 2; }
	@rm -rf $(BUILD)/fitted && mkdir -p $(BUILD)/fitted
	$(call fit,ll,fabric/machines,24)
	$(call fit,normal,$(BUILD)/fitted,12)

machines: fitted ## fit the shipped machine files to EPSIM_DATA=DIR/measured (20 minutes)
	cp $(FITTED:%=$(BUILD)/fitted/%.yaml) fabric/machines

machines-same: fitted ## fit them, and fail if that differs from what is shipped
	@set -e; for machine in $(FITTED); do \
	    cmp fabric/machines/$$machine.yaml $(BUILD)/fitted/$$machine.yaml; done
	@echo "machines: the fit writes the shipped files, byte for byte"

# --- tests -----------------------------------------------------------------------------------
$(BUILD)/test-runner: $(TEST_OBJ) $(BUILD)/libepsim.a $(BUILD)/flags.link
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) -o $@ $(TEST_OBJ) $(BUILD)/libepsim.a $(CHECK_LIBS) $(LIBS)

# Plugins for the tests, the example among them: shared objects that know sim/backend.h alone.
PLUGINS := $(patsubst %,$(BUILD)/plugin_%.so,example broken v2 ref)

plugin-example: $(BUILD)/plugin_example.so ## build the example plugin, tests/plugin_example.c

$(BUILD)/plugin_%.so: $(BUILD)/tests/plugin_%.o
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) -shared -o $@ $^ -lm

# The example under other names: for a later version, and inside the broken plugin.
$(BUILD)/tests/plugin_v2.o: DEFINE := -Dsim_backend_v1=sim_backend_v2
$(BUILD)/tests/plugin_inner.o: DEFINE := -Dsim_backend_v1=example_backend
$(BUILD)/tests/plugin_v2.o $(BUILD)/tests/plugin_inner.o: tests/plugin_example.c \
    $(BUILD)/flags.compile | $(GEN_HEADERS) $(BUILD)/packages.ok
	$(Q)mkdir -p $(@D) && $(CC) $(EPSIM_CFLAGS) $(CFLAGS) $(DEFINE) -c $< -o $@
$(BUILD)/plugin_broken.so: $(BUILD)/tests/plugin_inner.o
$(BUILD)/plugin_ref.so: $(BUILD)/tests/plugin_ref.o $(BUILD)/libepsim.a $(BUILD)/flags.link
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) -shared -o $@ $(BUILD)/tests/plugin_ref.o $(BUILD)/libepsim.a -lm

runner: $(PLUGINS) $(BUILD)/test-runner $(if $(TOOL_SRC),$(BUILD)/epsim) $(REF_LIBS)

# Targets that do the set-up first build in a second make, which sees what was installed.
# Without a -j of the user's own it takes all cores.
again = $(MAKE) $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))

setup: ## install the Debian packages that are missing (tools/setup.sh)
	@CC='$(CC)' tools/setup.sh

test: setup ## set up, build and run every test (EPSIM_DATA=DIR adds tests on outside data)
	+@$(again) runner
	@$(BUILD)/test-runner

check-one: runner ## run the suite SUITE=name alone (build/test-runner --list names them)
	@$(BUILD)/test-runner $(SUITE)

long: runner ## the exhaustive tests: exp and log over all 2^32 inputs (about half an hour)
	@CK_DEFAULT_TIMEOUT=7200 EPSIM_LONG=1 $(BUILD)/test-runner mathfn

# Leaks count too. A sanitised test is several times slower, hence the quick set.
# The sanitizers' own code hides from gcc what it otherwise sees of lengths.
ASAN_FLAGS := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined \
    -fno-sanitize-recover=all -Wno-format-truncation
asan: setup ## the quick set of tests under address and undefined behaviour sanitizers
	+@$(again) BUILD=$(BUILD)/asan CUDA=0 CFLAGS='$(ASAN_FLAGS)' runner
	@EPSIM_QUICK=1 CK_DEFAULT_TIMEOUT=600 $(BUILD)/asan/test-runner $(SUITE)

# libFuzzer feeds each tests/fuzz_*.c for SECONDS; what it learns stays in $(BUILD)/fuzz/corpus.
SECONDS ?= 30
FUZZ := $(patsubst tests/%.c,%,$(sort $(wildcard tests/fuzz_*.c)))
FUZZ_FLAGS := -O1 -g -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
fuzz: ## feed every parser broken bytes for SECONDS=30 each (needs clang: tools/setup.sh --all)
	+@$(again) BUILD=$(BUILD)/fuzz CC=clang CUDA=0 CFLAGS='$(FUZZ_FLAGS)' fuzz-programs
	@set -e; for target in $(FUZZ); do mkdir -p $(BUILD)/fuzz/corpus/$$target; \
	    echo "$$target"; $(BUILD)/fuzz/$$target -max_total_time=$(SECONDS) -print_final_stats=1 \
	    -artifact_prefix=$(BUILD)/fuzz/$$target- $(BUILD)/fuzz/corpus/$$target \
	    >$(BUILD)/fuzz/$$target.log 2>&1 || { tail -n 40 $(BUILD)/fuzz/$$target.log; exit 1; }; done

fuzz-programs: $(FUZZ:%=$(BUILD)/%)

$(BUILD)/fuzz_%: $(BUILD)/tests/fuzz_%.o $(BUILD)/libepsim.a
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) -fsanitize=fuzzer -o $@ $^ $(LIBS)

# A second program: a CUDA context does not survive the fork that Check makes for each test.
$(BUILD)/test-gpu: $(GPU_TEST_OBJ) $(BUILD)/libepsim.a $(BUILD)/flags.link
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) -o $@ $(GPU_TEST_OBJ) $(BUILD)/libepsim.a $(CHECK_LIBS) $(LIBS)

test-gpu: $(if $(filter 1,$(HAVE_CUDA)),$(BUILD)/test-gpu) ## run the tests that need a GPU (skipped loudly without one)
	@$(if $(filter 1,$(HAVE_CUDA)),timeout -k 10 600 $(BUILD)/test-gpu $(SUITE),\
	    echo 'SKIPPED, nothing on a GPU was tested: built without CUDA')

# One decode step of 8 ranks after another, 16 streams each: the main job, small.
DEMO := $(BUILD)/demo
DEMO_REPLAY := $(BUILD)/epsim replay $(DEMO)/topk_ids.npy --offsets $(DEMO)/offsets.npy \
    --weights none --model gpt-oss-20b --machine h200-hgx --ep 8 --mode ll --batch 16 --steps 8 \
    --backend ref --db $(DEMO)/run.db

demo: setup ## set up, build, replay a small generated trace and say where its database is
	+@$(again) $(BUILD)/epsim $(BUILD)/demo-trace
	@mkdir -p $(DEMO) && rm -f $(DEMO)/run.db && $(BUILD)/demo-trace $(DEMO)
	@echo '$(DEMO_REPLAY)'
	@$(DEMO_REPLAY)
	@echo 'README.md has questions for it: sqlite3 $(DEMO)/run.db'

study-glm: $(BUILD)/epsim ## EP8, EP16 or EP32 for the article's GLM? $(BUILD)/study-glm/index.html
	$(Q)tools/study_glm.sh $(BUILD)/epsim $(BUILD)/study-glm

same-digests: setup ## build with gcc and clang, -O0 and -O3: every job gives one digest
	@MAKE='$(MAKE)' tools/same_digests.sh $(BUILD)

bench-peers: all ## the same all-to-all here, on SimGrid and on ns-3 (Debian packages, optional)
	@CC='$(CC)' tools/bench_peers.sh $(BUILD)

$(BUILD)/demo-trace: $(BUILD)/tools/demo_trace.o $(BUILD)/libepsim.a
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) -o $@ $^ $(LIBS)

tidy: $(GEN_HEADERS) ## check the rules of the source tree (tools/tidy.sh)
	@CC='$(CC)' BUILD='$(BUILD)' tools/tidy.sh

# --- the reference as a library ------------------------------------------------------------------
$(BUILD)/libepsim_ref.a: $(REF_OBJ)
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcs $@ $^

$(BUILD)/libepsim_ref.so.0: $(REF_OBJ) $(BUILD)/flags.link
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) -shared -Wl,-soname,libepsim_ref.so.0 -Wl,-z,defs -o $@ $(REF_OBJ) -lm

# Headers name each other as "ref/x.h", so they live in a folder of that name and users compile
# with -I$(PREFIX)/include/epsim, which epsim_ref.pc says.
install: all $(REF_LIBS) ## install epsim and libepsim_ref under PREFIX=/usr/local (DESTDIR=)
	@$(MAKE) install-files

# What is built already, and nothing else: the test of this must not rebuild what it runs in.
install-files:
	install -d '$(DESTDIR)$(PREFIX)/bin' '$(DESTDIR)$(PREFIX)/lib/pkgconfig' \
	    '$(DESTDIR)$(PREFIX)/include/epsim/ref' '$(DESTDIR)$(PREFIX)/include/epsim/sim' \
	    '$(DESTDIR)$(PREFIX)/share/epsim'
	install -m 755 $(BUILD)/epsim '$(DESTDIR)$(PREFIX)/bin'
	install -m 644 $(BUILD)/libepsim_ref.a '$(DESTDIR)$(PREFIX)/lib'
	install -m 755 $(BUILD)/libepsim_ref.so.0 '$(DESTDIR)$(PREFIX)/lib'
	ln -sf libepsim_ref.so.0 '$(DESTDIR)$(PREFIX)/lib/libepsim_ref.so'
	install -m 644 $(wildcard ref/*.h) '$(DESTDIR)$(PREFIX)/include/epsim/ref'
	install -m 644 sim/backend.h sim/traffic.h '$(DESTDIR)$(PREFIX)/include/epsim/sim'
	install -m 644 tests/plugin_example.c sim/plugins.md '$(DESTDIR)$(PREFIX)/share/epsim'
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' tools/epsim_ref.pc.in \
	    > '$(DESTDIR)$(PREFIX)/lib/pkgconfig/epsim_ref.pc'

$(BUILD)/packages.ok:
	@CC='$(CC)' tools/setup.sh --check && mkdir -p $(@D) && touch $@

clean: ## remove $(BUILD)
	rm -rf $(BUILD)

help: ## list the targets
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/\1\t\2/p' Makefile | expand -t 16

FORCE:
.PHONY: all objects fitted machines machines-same plugin-example runner setup test check-one long \
    asan fuzz fuzz-programs test-gpu demo study-glm same-digests bench-peers tidy install \
    install-files clean help FORCE
