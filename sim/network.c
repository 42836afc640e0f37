/* sim/network.c - from words to a shape. */
#include "sim/network.h"

#include <stdio.h>
#include <string.h>

#include "fabric/units.h"

enum { RATE_BYTES = 32 };

static const struct fabric_unit GBITS = {1000000000, 8};

/* "GBPS", "GBPS:shared" or "GBPS:own". */
static int read_background(const char *text, struct fabric_network_shape *shape, char *err,
                           size_t err_len)
{
    const size_t span = strcspn(text, ":");
    const char *lane = text + span;
    char rate[RATE_BYTES] = "";
    const bool own = strcmp(lane, ":own") == 0;

    if (span < sizeof rate) memcpy(rate, text, span);
    if ((lane[0] != '\0' && !own && strcmp(lane, ":shared") != 0) ||
        fabric_decimal_parse(rate, GBITS, &shape->background_bytes_per_s) != FABRIC_DECIMAL_OK) {
        snprintf(err, err_len,
                 "--background: %.32s: must be Gb/s, and :shared or :own for its virtual lane",
                 text);
        return -1;
    }
    shape->own_lane = own;
    return 0;
}

int sim_network_read(const struct sim_settings *settings, const struct fabric_machine *machine,
                     struct fabric_network_shape *shape, char *err, size_t err_len)
{
    struct fabric_network_shape read = {.seed = settings->seed};
    const char *routing = settings->fabric_routing, *control = settings->congestion_control;
    read.routing = strcmp(routing, "static") == 0     ? FABRIC_ROUTING_STATIC
                   : strcmp(routing, "adaptive") == 0 ? FABRIC_ROUTING_ADAPTIVE
                                                      : FABRIC_ROUTING_IDEAL;
    read.control = strcmp(control, "on") == 0    ? FABRIC_CONTROL_ON
                   : strcmp(control, "off") == 0 ? FABRIC_CONTROL_OFF
                                                 : FABRIC_CONTROL_IDEAL;
    if (read_background(settings->background, &read, err, err_len) != 0) return -1;
    const uint64_t carries = fabric_network_bytes_per_s(NULL, machine);
    if (carries > 0 && read.background_bytes_per_s >= carries) {
        char most[48];
        fabric_decimal_format(carries, GBITS, most, sizeof most);
        snprintf(err, err_len,
                 "--background: %.32s: must be below the %s Gb/s that a NIC of %s carries",
                 settings->background, most, machine->name);
        return -1;
    }
    if (machine->nic_goodput_bytes_per_s > 0 &&
        fabric_network_check(&read, machine, err, err_len) != 0)
        return -1;
    *shape = read;
    return 0;
}
