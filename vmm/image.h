/* SPDX-License-Identifier: MIT */
/* The guest image that machines start from: the newest complete one in cache_dir/images, or
 * image.path. vmm/image/build makes them; image.json is written last and makes one complete. */
#ifndef VMM_IMAGE_H
#define VMM_IMAGE_H

#include <jansson.h>
#include "vmm/options.h"

struct vmm_image {
    char dir[512];
    char kernel[640], initrd[640], root[640];
    json_t *about; /* image.json */
};

/* Find it and read its image.json. -ENOENT with what to do when there is none. */
TR_MUST_CHECK int vmm_image_find(const struct vmm_options *options, struct vmm_image *out,
                                 struct err *err);
void vmm_image_fini(struct vmm_image *image);

#endif
