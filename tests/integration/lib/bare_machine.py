# SPDX-License-Identifier: MIT
"""The guest image on a bare emulator, without a manager."""
import glob
import json
import os
import re

from harness import Process, image_cache, skip, wait_until


def image_dir():
    """The image of this run; by hand, the newest in the cache."""
    if os.environ.get("TRANSOM_IMAGE"):
        return os.environ["TRANSOM_IMAGE"]
    found = sorted(glob.glob(os.path.join(image_cache(), "images/*/image.json")), key=os.path.getmtime)
    return os.path.dirname(found[-1]) if found else skip(f"no guest image in {image_cache()}: run vmm/image/build")


def describe(image):
    with open(os.path.join(image, "image.json"), encoding="utf-8") as file:
        return json.load(file)


def tsc_khz():
    """What the emulated processor's counter does; a wrong value skews the guest's clock only."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        return int(float(re.search(r"cpu MHz\s*: ([\d.]+)", file.read()).group(1)) * 1000)


class Machine:
    """The image in an emulator."""

    def __init__(self, folder, root=None, data=None, memory=512):
        image = image_dir()
        khz = tsc_khz()
        self.folder = folder
        self.console_path = os.path.join(folder, "console")
        self.socket = os.path.join(folder, "agent.sock")
        words = ("console=ttyS0 quiet loglevel=4 reboot=t panic=-1 tsc=reliable no_timer_check pci=off "
                 f"tsc_early_khz={khz} lpj={khz * 4} transom.root=root")
        argv = ["qemu-system-x86_64", "-M", "microvm,isa-serial=on,rtc=on", "-accel", "tcg,thread=single,tb-size=128",
                "-cpu", "max,-erms", "-smp", "2", "-m", str(memory), "-nodefaults", "-no-user-config",
                "-display", "none", "-no-reboot", "-serial", f"file:{self.console_path}",
                "-kernel", os.path.join(image, describe(image)["files"]["kernel"]),
                "-initrd", os.path.join(image, "initrd"), "-device", "virtio-serial-device",
                "-chardev", f"socket,id=agent,path={self.socket},server=on,wait=off",
                "-device", "virtserialport,chardev=agent,name=transom.agent.0"]
        if root:
            argv += ["-drive", f"id=root,file={root},format=raw,if=none,readonly=on",
                     "-device", "virtio-blk-device,drive=root,serial=root"]
        if data:
            words += " transom.data=data"
            argv += ["-drive", f"id=data,file={data},format=raw,if=none",
                     "-device", "virtio-blk-device,drive=data,serial=data"]
        self.process = Process([*argv, "-append", words], os.path.join(folder, "qemu.log"))

    def console(self):
        with open(self.console_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def wait_for_end(self, limit=90):
        wait_until(lambda: not self.process.alive(), "the machine is off", limit)
        return self.console()
