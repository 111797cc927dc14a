# tidemark on top of the image that you train in: two lines, no package manager, about 20 MB.
#   docker build -f packaging/docker/layer.Dockerfile --build-arg IMAGE=you/train:1 -t you/train:1-tidemark build/packages
# Not run where it was written (no Docker there); what it does in the image was run in a chroot.
ARG IMAGE
FROM ${IMAGE}
ADD tidemark-0.2.0-linux-x86_64.tar.gz /opt/
ENV PATH=/opt/tidemark-0.2.0-linux-x86_64/bin:$PATH
