# vtwin in a container: docker build -t vtwin . && docker run --rm -v "$PWD:/work" vtwin run --config twin.yaml --rate 5
FROM python:3.12-slim AS build
WORKDIR /src
COPY requirements-run.lock pyproject.toml README.md LICENSE NOTICE vtwin.py ./
COPY observe observe
COPY replay replay
COPY calibrate calibrate
COPY sim sim
COPY traces traces
# What vtwin needs to run, each file by its hash; then vtwin itself.
RUN python -m venv /opt/vtwin && /opt/vtwin/bin/pip install --no-cache-dir --require-hashes -r requirements-run.lock \
    && /opt/vtwin/bin/pip install --no-cache-dir --no-deps .

FROM python:3.12-slim
COPY --from=build /opt/vtwin /opt/vtwin
# The compiled engine belongs to the user that runs it; it is compiled here, once, and not at every start.
RUN useradd --create-home vtwin && mkdir /work && chown vtwin /work
USER vtwin
RUN /opt/vtwin/bin/python -c "from sim import compile_engine; compile_engine()"
ENV PATH=/opt/vtwin/bin:$PATH
WORKDIR /work
ENTRYPOINT ["vtwin"]
CMD ["--help"]
