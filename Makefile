# epsim: `make help` lists the targets.
.DEFAULT_GOAL := all
BUILD ?= build
CC ?= cc
CFLAGS ?= -O2 -g
WARN := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wcast-qual -Wcast-align \
        -Wstrict-prototypes -Wmissing-prototypes -Wundef -Wvla -Wformat=2 -Wwrite-strings \
        -Wswitch-enum -Wc++-compat
EPSIM_CFLAGS := -std=c11 -D_GNU_SOURCE -I. -I$(BUILD) -UNDEBUG -ffp-contract=off -fno-math-errno \
        -fPIC -pthread -MMD -MP $(WARN) $(WERROR)
LIBS := -lsqlite3 -ljansson -lcyaml -lyaml -lm -pthread

LIB_SRC := $(wildcard ref/*.c fabric/*.c traces/*.c sim/*.c)
TOOL_SRC := $(wildcard tools/*.c)
TEST_SRC := $(wildcard tests/test_*.c)
GEN_SRC := $(if $(wildcard tools/embed.sh),$(BUILD)/gen/machines.c $(BUILD)/gen/models.c)
LIB_OBJ := $(LIB_SRC:%.c=$(BUILD)/%.o) $(GEN_SRC:.c=.o)
TOOL_OBJ := $(TOOL_SRC:%.c=$(BUILD)/%.o)

all: $(BUILD)/epsim
$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(EPSIM_CFLAGS) $(CFLAGS) -c $< -o $@
$(BUILD)/gen/%.o: $(BUILD)/gen/%.c
	$(CC) $(EPSIM_CFLAGS) $(CFLAGS) -c $< -o $@
$(BUILD)/epsim: $(TOOL_OBJ) $(BUILD)/libepsim.a
	$(CC) $(CFLAGS) -o $@ $^ $(LIBS)
$(BUILD)/libepsim.a: $(LIB_OBJ)
	rm -f $@; ar rcs $@ $^
-include $(LIB_OBJ:.o=.d) $(TOOL_OBJ:.o=.d)
TEST_OBJ := $(wildcard tests/*.c)
TEST_OBJ := $(TEST_OBJ:%.c=$(BUILD)/%.o)
objects: $(LIB_OBJ) $(TOOL_OBJ) $(TEST_OBJ) ## compile everything, link nothing
-include $(TEST_OBJ:.o=.d)
.PHONY: all objects
