# vtwin in a container: docker build -t vtwin . && docker run --rm -v "$PWD:/work" vtwin run --config twin.yaml --rate 5
FROM python:3.12-slim AS build
WORKDIR /src
COPY requirements-run.lock pyproject.toml README.md LICENSE NOTICE vtwin.py lazy_dataclasses.py ./
COPY observe observe
COPY replay replay
COPY calibrate calibrate
COPY sim sim
COPY traces traces
# What vtwin needs to run, each file by its hash; then vtwin itself.
RUN python -m venv /opt/vtwin && /opt/vtwin/bin/pip install --no-cache-dir --require-hashes -r requirements-run.lock \
    && /opt/vtwin/bin/pip install --no-cache-dir --no-deps .
# Engine and cluster, compiled into the package for every x86-64 of the last ten years, for whoever runs the image.
RUN cd / && /opt/vtwin/bin/python -m sim.cluster.ship

FROM python:3.12-slim
COPY --from=build /opt/vtwin /opt/vtwin
RUN useradd --create-home vtwin && mkdir /work && chown vtwin /work
USER vtwin
# On an x86-64 this loads what is there, and shows that it can be. On another machine it compiles, for this user.
RUN /opt/vtwin/bin/python -c "from sim.cluster.cluster_ready import compile_everything; compile_everything()"
ENV PATH=/opt/vtwin/bin:$PATH
WORKDIR /work
ENTRYPOINT ["vtwin"]
CMD ["--help"]
