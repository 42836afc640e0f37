/* sim/network.h - the options about the fabric between the nodes, made concrete. */
#ifndef SIM_NETWORK_H
#define SIM_NETWORK_H

#include <stddef.h>
#include <stdint.h>
#include "fabric/network.h"
#include "sim/settings.h"

/* --fabric-routing, --congestion-control, --background and the seed into shape, checked against
 * the machine. 0, or -1 with err: what cannot be asked. */
int sim_network_read(const struct sim_settings *settings, const struct fabric_machine *machine,
                     struct fabric_network_shape *shape, char *err, size_t err_len);

#endif
