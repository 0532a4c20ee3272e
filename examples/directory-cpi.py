#!/usr/bin/env python3
"""A whole CPI in Python: a cloud whose VMs, disks and stemcells are folders. It runs nothing, and passes certification.

    directory-cpi.py FOLDER < request.json

Copy it, and put your cloud's calls where folders are made and removed. docs/writing-a-cpi.md goes through it.
"""
import fcntl, json, os, re, shutil, sys, uuid

ROOT = os.path.abspath(sys.argv[1])


class CpiError(Exception):
    """The type decides how a director reacts; it knows ten of them."""

    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = "Bosh::Clouds::" + kind


def check(holds, message):
    if not holds:
        raise CpiError("CloudError", message)


def place(shelf, cid):
    """Where something is. A cid that we never gave names nothing, whatever it looks like."""
    known = isinstance(cid, str) and re.fullmatch(r"[a-z]+-[0-9a-f-]{36}", cid)
    return os.path.join(ROOT, shelf, cid if known else "nothing")


def load(shelf, cid, missing):
    check(isinstance(cid, str), "a cid is a string")
    try:
        with open(os.path.join(place(shelf, cid), "record.json")) as file:
            return json.load(file)
    except FileNotFoundError:
        raise CpiError(missing, f"there is no {cid!r} in {shelf}") from None


def make(shelf, prefix, record, fill=lambda folder: None):
    """Appears as a whole or not at all: whoever is killed in the middle leaves nothing that anybody sees."""
    cid = f"{prefix}-{uuid.uuid4()}"
    half_made = os.path.join(ROOT, shelf, "." + cid)
    os.makedirs(half_made)
    try:
        fill(half_made)
        save(half_made, record)
        os.rename(half_made, os.path.join(ROOT, shelf, cid))
    except BaseException:
        shutil.rmtree(half_made, ignore_errors=True)
        raise
    return cid


def save(folder, record):
    path = os.path.join(folder, "record.json")
    with open(os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(record, file)
        os.fsync(file.fileno())
    os.rename(path + ".new", path)


def remove(shelf, cid):
    """What is gone already is what the caller wants."""
    check(isinstance(cid, str), "a cid is a string")
    shutil.rmtree(place(shelf, cid), ignore_errors=True)


def holder(disk_cid):
    """The VM that has a disk. A VM that is gone has none."""
    vm = load("disks", disk_cid, "DiskNotFound")["vm"]
    return vm if vm and os.path.exists(place("vms", vm)) else None


def info():
    return {"api_version": 2, "stemcell_formats": ["warden-tar", "general-tar"]}


def create_stemcell(image_path, cloud_properties):
    check(isinstance(image_path, str) and os.path.isfile(image_path), f"there is no image {image_path!r}")
    check(cloud_properties is None or isinstance(cloud_properties, dict), "cloud properties are an object")
    return make("stemcells", "sc", {}, lambda folder: shutil.copy(image_path, folder))


def delete_stemcell(cid):
    remove("stemcells", cid)


def create_vm(agent_id, stemcell_cid, cloud_properties, networks, disk_cids, env=None):
    load("stemcells", stemcell_cid, "CloudError")
    check(isinstance(agent_id, str) and isinstance(cloud_properties, dict), "wrong arguments")
    check(isinstance(networks, dict) and networks, "a VM needs networks")
    check(all(isinstance(network, dict) for network in networks.values()), "networks are objects")
    check(isinstance(disk_cids, (list, type(None))) and isinstance(env, (dict, type(None))), "wrong arguments")
    if min(VERSION, STEMCELL_VERSION) < 2:
        raise CpiError("CloudError", "version 1 needs a registry, which this CPI does not know: "
                       f"the request has version {VERSION}, the stemcell {STEMCELL_VERSION}")

    def give_settings(folder):
        # All that the agent needs to start. A real cloud has a place for it: user data, a config drive, a file.
        settings = {"agent_id": agent_id, "vm": {"name": os.path.basename(folder)[1:]}, "networks": networks,
                    "disks": {"system": "/dev/sda", "persistent": {}}, "env": env or {}}
        with open(os.open(os.path.join(folder, "settings.json"), os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            json.dump(settings, file)

    return [make("vms", "vm", {}, give_settings), networks]


def delete_vm(cid):
    remove("vms", cid)


def has_vm(cid):
    check(isinstance(cid, str), "a cid is a string")
    return os.path.exists(place("vms", cid))


def reboot_vm(cid):
    load("vms", cid, "VMNotFound")


def create_disk(size, cloud_properties, _vm_cid=None):
    check(type(size) is int and size > 0 and isinstance(cloud_properties, dict), "a disk needs a size in MiB")
    return make("disks", "disk", {"size": size, "vm": None})


def delete_disk(cid):
    if has_disk(cid):
        check(not holder(cid), "the disk is attached; detach it first")
    remove("disks", cid)


def has_disk(cid):
    check(isinstance(cid, str), "a cid is a string")
    return os.path.exists(place("disks", cid))


def attach_disk(vm_cid, disk_cid):
    load("vms", vm_cid, "VMNotFound")
    check(holder(disk_cid) in (None, vm_cid), "the disk is attached to another VM; detach it there first")
    save(place("disks", disk_cid), load("disks", disk_cid, "DiskNotFound") | {"vm": vm_cid})
    return {"path": place("disks", disk_cid)}  # the hint: how the agent finds the disk


def detach_disk(vm_cid, disk_cid):
    load("vms", vm_cid, "VMNotFound")
    if has_disk(disk_cid) and holder(disk_cid) == vm_cid:
        save(place("disks", disk_cid), load("disks", disk_cid, "DiskNotFound") | {"vm": None})


METHODS = [info, create_stemcell, delete_stemcell, create_vm, delete_vm, has_vm, reboot_vm,
           create_disk, delete_disk, has_disk, attach_disk, detach_disk]


def version(value):
    return value if type(value) is int and value > 0 else 1


def answer(request):
    """One call: the method's name and its arguments. One at a time, so that two never change a record at once."""
    global VERSION, STEMCELL_VERSION
    check(isinstance(request, dict) and isinstance(request.get("arguments"), list), "this is no request")
    method = {method.__name__: method for method in METHODS}.get(str(request.get("method")))
    if not method:
        raise CpiError("NotImplemented", f"this CPI does not implement {request.get('method')!r}")
    if method is info:
        return info()
    context = request.get("context") if isinstance(request.get("context"), dict) else {}
    vm = context.get("vm") if isinstance(context.get("vm"), dict) else {}
    stemcell = vm.get("stemcell") if isinstance(vm.get("stemcell"), dict) else {}
    VERSION, STEMCELL_VERSION = version(request.get("api_version")), version(stemcell.get("api_version"))
    os.makedirs(ROOT, exist_ok=True)
    with open(os.path.join(ROOT, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            # Later contracts append arguments, as version 3 did.
            return method(*request["arguments"][:method.__code__.co_argcount])
        except TypeError as error:
            raise CpiError("CloudError", f"wrong arguments: {error}") from None


def main():
    result, error = None, None
    try:
        result = answer(json.loads(sys.stdin.buffer.read()))
    except CpiError as failure:
        error = {"type": failure.kind, "message": str(failure), "ok_to_retry": False}
    except Exception as failure:  # whatever happens, there is one answer
        error = {"type": "Bosh::Clouds::CpiError", "message": f"{type(failure).__name__}: {failure}", "ok_to_retry": False}
    print(json.dumps({"result": result, "error": error, "log": ""}))


main()
